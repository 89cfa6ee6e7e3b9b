"""A ZooKeeper server that implements the real client protocol, and a client for it."""
