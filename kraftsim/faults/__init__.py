"""Faults as data: what is done to whom, and when. One file per kind; a run's faults are generated before it and can be written down and replayed."""
