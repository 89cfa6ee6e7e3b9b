"""Many seeds: spread over the cores, counted and judged together."""
