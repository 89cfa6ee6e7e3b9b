"""The configurations of each Apache Kafka release, as rows: generated data."""
