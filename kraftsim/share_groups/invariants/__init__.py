"""Invariants about this concern, one file for each subject."""
