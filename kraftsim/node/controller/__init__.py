"""The controller: a quorum of one that owns the metadata log, and decides what brokers ask of it.   Source: KIP-500, KIP-631."""
