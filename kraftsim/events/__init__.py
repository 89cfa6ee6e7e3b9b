"""The catalogue of events of a run, one frozen class each.

A node emits an event with `world.emit(event)`; reports and invariants use nothing but events.
"""
