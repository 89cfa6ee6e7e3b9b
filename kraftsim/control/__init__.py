"""Control of a running cluster by HTTP: its state, its page, its metrics, and the verbs that act on
it.
"""
