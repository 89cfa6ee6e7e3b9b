"""Probes: short conversations of raw requests that are sent to Apache Kafka and to kraftsim; the
responses are compared and published.
"""
