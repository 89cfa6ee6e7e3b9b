"""ZooKeeper's client protocol: frames with an int32 length, containing records in jute, its
serialization format.
"""
