"""Fuzzes everything that reads bytes: each input must give a value or a typed error, in bounded
time and memory.

`make fuzz` runs the targets one after another, guided by coverage if atheris is installed;
`docs/conformance.md` explains the output.
"""
