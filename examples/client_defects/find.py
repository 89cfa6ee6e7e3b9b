"""Search seeds for the defect of a ticket, and run the corrected program with the same seeds.

python examples/client_defects/find.py aiokafka_844 [--first-seed 1] [--seeds 20]
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.lab.explore.record import RunResult
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_request

HERE = Path(__file__).parent
TICKETS = ("aiokafka_844", "aiokafka_921", "faust_323", "faust_517")
INVARIANT = "each-input-processed-once"
MISSING = " 0 copies"


def results(ticket: str, test: str, seeds: range) -> Iterator[RunResult]:
    """Run a test of a ticket with each seed."""
    chosen = scenario(f"{HERE / ticket}.py::{test}")
    for seed in seeds:
        yield run_request(RunRequest(scenario=chosen, mode=Mode.SIM, seed=seed))


def is_doubled(violation: str) -> bool:
    """Return whether a record was in the output more than once."""
    return INVARIANT in violation and MISSING not in violation


def main() -> int:
    """Print what was found; return 0 if the defect is in the first program, and only there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("ticket", choices=TICKETS)
    parser.add_argument("--first-seed", type=int, default=1, metavar="SEED")
    parser.add_argument("--seeds", type=int, default=20, metavar="N")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    found = False
    for number, result in enumerate(results(options.ticket, "test_as_reported", seeds), start=1):
        doubled = [violation for violation in result.violations if is_doubled(violation)]
        if doubled:
            print(f"{options.ticket}, as reported: found after {number} seeds: {doubled[0]}")
            found = True
            break
    else:
        print(f"{options.ticket}, as reported: not found in {options.seeds} seeds")
    bad = [
        result
        for result in results(options.ticket, "test_corrected", seeds)
        if result.outcome != "ok"
    ]
    print(f"{options.ticket}, corrected: {options.seeds - len(bad)} of {options.seeds} seeds clean")
    for result in bad:
        print(f"  seed {result.seed}: {next(iter(result.violations), result.trouble)}")
    return 0 if found and not any(is_doubled(each) for one in bad for each in one.violations) else 1


if __name__ == "__main__":
    sys.exit(main())
