"""Applications in virtual time: a user's asyncio program on simulated hosts beside a cluster, under
faults, from a seed.
"""
