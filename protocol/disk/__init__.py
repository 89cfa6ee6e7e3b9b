"""The files of a log directory, one format per module: bytes in, values out, and back to the same bytes."""
