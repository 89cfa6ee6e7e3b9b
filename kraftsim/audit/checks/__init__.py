"""The rules of an audit, by subject."""
