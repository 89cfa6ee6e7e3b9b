"""ZooKeeper's rules: the tree of znodes, sessions, watches, and who may do what."""
