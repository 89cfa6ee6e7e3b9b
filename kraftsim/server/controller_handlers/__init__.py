"""Requests that a controller answers about this concern, one file per API key."""
