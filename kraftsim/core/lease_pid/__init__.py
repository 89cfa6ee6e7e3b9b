"""lease_pid: producers lease their ids, partitions remember how far each of them has come, and what is not used for a time is forgotten.

The design before Kafka's own, as rules of its own: pure, and nothing of them is shared with Kafka's producer state.
Source: the lease_pid draft of the idempotent producer.
"""
