"""The files of a log directory, one format per module: bytes to values, and back to the same
bytes.
"""
