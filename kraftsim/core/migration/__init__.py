"""The move of a cluster from ZooKeeper to KRaft, as KIP-866 has it."""
