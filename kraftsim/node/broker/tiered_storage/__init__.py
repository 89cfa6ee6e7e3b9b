"""A broker's part in tiered storage: copies, reads, deletes and rebuilds, and the metadata topic that tells of all that (KIP-405)."""
