"""Requests of clients that push their metrics."""
