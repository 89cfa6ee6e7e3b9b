"""Members of a group that copy exactly once, and what becomes of that when one of them dies, stands still, or is of another time (KIP-447)."""
