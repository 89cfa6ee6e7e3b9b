"""lease_pid: producers lease their ids per partition, partitions track the sequence of each id, and
unused ids expire.

The predecessor of Kafka's design, as separate rules without I/O; nothing is shared with Kafka's
producer state.
Source: the lease_pid draft of the idempotent producer.
"""
