"""The records of `__remote_log_metadata`: which segments of which partitions lie in the remote store (KIP-405)."""
