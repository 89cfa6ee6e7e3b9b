"""Wrong rules put in on purpose, one at a time, to see whether the campaign notices: what survives shows where it is blind.

`make mutants` hunts them; `make docs` shows them in reference/mutants.md.
"""
