"""Inject KAFKA-10533 and search seeds until an invariant is violated.

The bug: a controller counts records as committed that it has not flushed. After a power loss it
allocates the same block of producer ids again.
"""

import argparse

from kraftsim.lab.explore.run import run_scenario

SCENARIO = "producer_ids_survive_failover"
BUG = "KAFKA-10533"


def search(seeds: int) -> int | None:
    """Run the scenario with one seed after another; return the first seed with a violation."""
    for seed in range(seeds):
        result = run_scenario(SCENARIO, mode="sim", seed=seed, bugs=(BUG,))
        if result.violations:
            print(f"seed {seed}: {result.violations[0]}")
            print(f"replay: {result.replay_line}")
            return seed
    return None


def main() -> int:
    """Return 0 if the bug was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    seed = search(parser.parse_args().seeds)
    return 0 if seed is not None else 1


if __name__ == "__main__":
    raise SystemExit(main())
