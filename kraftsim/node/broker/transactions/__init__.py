"""The transaction coordinator of a broker: its log, its markers, its timeouts."""
