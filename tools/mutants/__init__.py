"""Mutation testing: changes one rule at a time and checks that the campaign detects it; surviving
mutants show what it misses.

`make mutants` runs them; `make docs` writes reference/mutants.md.
"""
