"""The catalogue of events of a run, one frozen class each.

A node emits an event with `world.note(event)`; reports and invariants use nothing but events.
"""
