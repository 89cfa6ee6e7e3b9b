"""The wire protocol of lease_pid: an idempotent producer with leased ids, designed before Kafka's
own (KIP-98).

A separate protocol: frames of the same shape, API keys that Kafka does not use, and no messages
shared with Kafka.
Source: the lease_pid draft of the idempotent producer, as compared with KIP-98.
"""
