"""Faults as data: kind, target and trigger.

The kinds are in `kinds/`, one file per subject; the faults of a run are generated before it starts
and can be saved and replayed.
"""
