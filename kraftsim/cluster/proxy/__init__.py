"""A proxy in front of every node, byte by byte: what a network does to a cluster over real sockets. One process for the whole cluster."""
