"""A partition on its leader and followers: appends, offsets, segments, and visibility to readers.

Source: kafka.cluster.Partition.
"""
