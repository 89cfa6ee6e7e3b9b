"""The two kinds of producer state under the same workload: five batches per producer, and the
latest one only (KIP-758).
"""
