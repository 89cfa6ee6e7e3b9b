"""What must hold of every run: one property a file, as a check that watches a run and as SQL over its event log.

A property looks only at history, never at a node, so the same one judges a simulation, separate processes and a real broker's log alike.
"""
