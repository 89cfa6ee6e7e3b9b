"""What each release of Apache Kafka knows of configurations, as rows: generated data."""
