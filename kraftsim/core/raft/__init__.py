"""The metadata quorum: elections and the log that its leader replicates.   Source: KIP-595."""
