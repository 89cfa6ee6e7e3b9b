"""Invariants about this concern, one file each."""
