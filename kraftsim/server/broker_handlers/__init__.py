"""Requests that a broker answers about this concern, one file per API key."""
