"""ZooKeeper mode, the rules: how requests, znodes and metadata records say the same thing."""
