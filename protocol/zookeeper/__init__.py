"""ZooKeeper's client protocol: frames of an int32 length, in them records in jute, its serialization."""
