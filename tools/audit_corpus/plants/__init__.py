"""Defects to plant into the log directories of a sound cluster: each an edit of bytes that only the
rule about it can notice.
"""
