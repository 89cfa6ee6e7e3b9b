"""Checks the invariants of a run while its event logs are written: `kraftsim watch`.

`source` tails the logs for Spark, `ordering` puts events of all nodes in the order of time,
`checking` passes them to the checks of the invariants, `watch` joins these, `display` prints.
"""
