"""A byte-level TCP proxy in front of every node, which injects network faults over real sockets.

One process for the whole cluster.
"""
