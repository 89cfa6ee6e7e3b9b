"""One seeded workload over several designs of the idempotent producer: what is doubled, what is lost, and what each costs.

Source: KIP-98, KIP-360, KIP-447, KIP-758, KIP-890, the lease_pid draft.
"""
