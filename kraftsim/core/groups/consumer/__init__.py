"""Groups of the KIP-848 protocol: the coordinator computes the assignment and reconciles each
member through heartbeats.
"""
