"""Bytes that nobody meant, thrown at everything that reads bytes: each must become a value or a typed error, soon, and in little memory.

`make fuzz` runs the targets one after another, guided by coverage where atheris is there; `docs/conformance.md` says how to read what it prints.
"""
