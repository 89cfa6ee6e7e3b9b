"""ZooKeeper mode: the broker and controller components that keep cluster metadata in ZooKeeper
(pre-KRaft).
"""
