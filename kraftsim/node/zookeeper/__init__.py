"""A ZooKeeper server that speaks the real client protocol, and a client of it."""
