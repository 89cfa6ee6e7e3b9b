"""Many seeds: distributed over the cores, with a common summary."""
