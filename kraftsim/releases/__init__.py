"""Personas: what each Apache Kafka release line offers, one file per line, each a delta of the one before."""
