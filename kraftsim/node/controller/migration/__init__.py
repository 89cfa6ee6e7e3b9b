"""Migration of a cluster from ZooKeeper to KRaft, on the controller."""
