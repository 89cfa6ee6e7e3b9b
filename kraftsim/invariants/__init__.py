"""The invariants of every run: one property per file, as a check over events and as SQL over the
event log.

An invariant reads only the event history, never a node's state. The same invariant therefore checks
a simulation, separate processes and the log of a real broker.
"""
