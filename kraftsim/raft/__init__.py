"""The KRaft quorum: leader elections and log replication.   Source: KIP-595."""
