"""The two ways to remember producers, under the same workload: five batches of each, and the latest one only (KIP-758)."""
