"""Mutants that people thought of, one file a core."""
