"""Probes: short talks of raw requests, put to Apache Kafka and to kraftsim alike, whose answers are compared and written down."""
