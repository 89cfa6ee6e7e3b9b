"""The environment of a node: clock, random numbers, disk, event log.

`real` for processes and tests, `simulated` for virtual time.

Networking is not here: node code uses standard asyncio, and the simulated event loop provides the
network beneath it.
"""
