"""One partition on its leader: what it takes, at which offsets, in which segments, and what readers see.   Source: kafka.cluster.Partition."""
