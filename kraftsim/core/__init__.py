"""The rules of Kafka as plain state machines: no input or output, no clock, no chance, no tasks."""
