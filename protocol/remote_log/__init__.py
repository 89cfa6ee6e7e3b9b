"""The records of `__remote_log_metadata`: the segments of partitions in remote storage
(KIP-405).
"""
