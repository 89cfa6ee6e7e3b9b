"""One seed: generate its faults, run it in virtual time, check it, replay it."""
