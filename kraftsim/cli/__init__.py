"""The command `kraftsim`: verbs of one subject share a file, imported only when one of them is
used.
"""
