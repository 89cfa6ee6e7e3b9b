"""The producer state of a partition: idempotence and transactions of each producer.   Source: KIP-98, KIP-360."""
