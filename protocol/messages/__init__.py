"""The requests and responses of Kafka, one file per API key; `registry` finds them by number."""
