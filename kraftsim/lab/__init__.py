"""The laboratory: faults, historical bugs, workloads, and campaigns of many seeds over clusters."""
