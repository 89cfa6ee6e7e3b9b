"""A run in the formats of other tools: timelines, space-time diagrams, histories, sequence diagrams
and traces.

Each format is one file with a function `write`; `scope.py` reads the events in batches, so that
memory depends on the format's open operations and not on the length of the run.
"""
