"""Kafka's rules as plain state machines: without I/O, clocks, random numbers or tasks."""
