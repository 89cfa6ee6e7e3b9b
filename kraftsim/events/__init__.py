"""The catalogue of facts that can happen in a run, one frozen class each.

A node says what happened with `world.note(event)`; everything that is known about a run afterwards is known from these.
"""
