"""Which segments of a log lie in a remote store, and what follows from that for leaders, followers and readers (KIP-405)."""
