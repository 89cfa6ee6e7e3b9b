"""Tiered storage of a broker: copies, reads, deletes and rebuilds remote segments, and their
metadata topic (KIP-405).
"""
