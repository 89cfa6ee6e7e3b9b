"""ZooKeeper mode, the shells: brokers and controllers as they were before KRaft."""
