"""The Kafka wire protocol: bytes to objects and back, and nothing else."""
