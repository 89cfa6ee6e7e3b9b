"""Servers and clients of lease_pid: sockets, files and ZooKeeper around the rules.   Source: the lease_pid draft."""
