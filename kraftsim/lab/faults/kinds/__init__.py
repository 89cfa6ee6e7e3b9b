"""The kinds of faults, one file each."""
