"""Requests that a controller answers about this concern."""
