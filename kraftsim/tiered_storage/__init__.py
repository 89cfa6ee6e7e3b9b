"""Tiered storage (KIP-405): remote segments, and their use by leaders, followers and readers."""
