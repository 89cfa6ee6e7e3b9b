"""One seeded workload over several designs of the idempotent producer: duplicates, losses, and
costs of each.

Source: KIP-98, KIP-360, KIP-447, KIP-758, KIP-890, the lease_pid draft.
"""
