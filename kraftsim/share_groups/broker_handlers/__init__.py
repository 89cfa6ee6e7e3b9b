"""Requests that a broker answers about this concern."""
