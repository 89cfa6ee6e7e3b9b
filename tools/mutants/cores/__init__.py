"""Handwritten mutants, one file per core."""
