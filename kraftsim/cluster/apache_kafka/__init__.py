"""Clusters of Apache Kafka's own nodes, started from its jars on this machine."""
