"""The `records` of `__remote_log_metadata`: segments in remote storage (KIP-405)."""
