"""The kinds of faults, by what they act on."""
