"""The migration of a cluster from ZooKeeper to KRaft, by KIP-866."""
