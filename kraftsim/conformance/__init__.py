"""Protocol requirements for Kafka nodes, as sentences with checks that run against any address.

Apache Kafka is the reference for all of them.
"""
