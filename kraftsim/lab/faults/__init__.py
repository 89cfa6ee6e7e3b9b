"""Faults as data: kind, target and trigger.

One file per kind; the faults of a run are generated before it starts and can be saved and replayed.
"""
