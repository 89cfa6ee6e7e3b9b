"""ZooKeeper server rules: the znode tree, sessions, watches, and access control."""
