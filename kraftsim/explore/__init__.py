"""One seed: generate its faults, run it in virtual time, judge it, replay it."""
