"""A KRaft controller that takes a cluster over from ZooKeeper."""
