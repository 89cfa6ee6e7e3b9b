"""The files of a log directory: bytes to values, and back to the same bytes."""
