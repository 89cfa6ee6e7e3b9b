"""The wire of lease_pid: an idempotent producer whose ids are leased, as it was drawn before Kafka's own (KIP-98).

A protocol of its own beside Kafka's: frames of the same shape, API keys that Kafka never gives away, and nothing shared with Kafka's messages.
Source: the lease_pid draft of the idempotent producer, as compared with KIP-98.
"""
