"""The ways to come by producer ids that KIP-730 names, in virtual time: ids burned, stalls, and how long the numbers last."""
