"""Servers and clients of lease_pid: the sockets, files and ZooKeeper access around the pure rules.

Source: the lease_pid draft.
"""
