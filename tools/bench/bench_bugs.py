"""Measures how many seeds, and how much CPU time, it takes to find each historical bug that can be
re-enabled.

python -m tools.bench.bench_bugs [--scenario NAME] [--repetitions 20] [--limit 2000] [--jobs N]
                                 [--bug NAME ...] [--write]

Each repetition runs the seeds of its own range until an invariant that should catch the bug is
violated; a range without a violation is reported as such. A bug that violates an invariant in every
run before it has an effect is searched for until it has one. Each bug is searched in the scenario
that it names. Prints a Markdown table; --write stores the results in docs/bugs.json, from which
`make docs` makes reference/bugs.md.
"""

import argparse
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor

from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.lab.bugs.bug import BUGS, bug
from kraftsim.lab.campaign.worker_pool import CampaignJob, Terms, run_job_safely
from kraftsim.lab.explore.request import faults_of
from kraftsim.world.interface import stream
from tools.bench.bug_hunts import REPETITIONS, BugHunts, Hunt, read, write
from tools.docs.bugs_page import HEAD, row

SHOWS_AT_ONCE = frozenset({"producer-snapshot-below-its-offset"})
"""Violated by the bug itself, long before it has an effect."""
RANGE = 100_000
"""The distance between the seed ranges of two repetitions, so that they do not overlap."""


def hunt(name: str, scenario_name: str, repetition: int, limit: int) -> Hunt:
    """Run the seeds of one range until the bug is found."""
    wanted = set(bug(name).caught_by) - SHOWS_AT_ONCE
    spent = 0.0
    first = 1 + repetition * RANGE
    for number, seed in enumerate(range(first, first + limit), 1):
        terms = Terms(bugs=(name,), release=bug(name).release)
        done = run_job_safely(CampaignJob(name=scenario_name, seed=seed, terms=terms))
        spent += done.cpu_seconds
        if wanted & set(done.result.invariants_violated):
            drawn = scenario(scenario_name).faults(stream(seed, "harness", 1, "faults"), Mode.SIM)
            is_by_scenario = faults_of(scenario(scenario_name), seed, Mode.SIM) == drawn
            caught_by = tuple(done.result.invariants_violated)
            return Hunt(
                is_found=True,
                seeds=number,
                cpu_seconds=round(spent, 2),
                caught_by=caught_by,
                is_by_scenario=is_by_scenario,
            )
        if done.result.outcome != "ok" and not SHOWS_AT_ONCE.issuperset(
            done.result.invariants_violated
        ):
            print(
                f"{name}, seed {seed}: {done.result.outcome} {done.result.invariants_violated} "
                f"{done.result.trouble}",
                file=sys.stderr,
            )
    return Hunt(is_found=False, seeds=limit, cpu_seconds=round(spent, 2))


def main() -> int:
    """Search for every bug as often as requested, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenario", help="the scenario for all bugs")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--limit", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--bug", action="append", default=[])
    parser.add_argument("--write", action="store_true", help="store the results in docs/bugs.json")
    options = parser.parse_args()
    names = [bug(name).name for name in options.bug] or list(BUGS.names())
    print(
        f"{options.repetitions} repetitions with ranges of seeds {RANGE} apart, at most "
        f"{options.limit} seeds each"
    )
    print(HEAD, flush=True)
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for name in names:
            searched = options.scenario or bug(name).scenario
            hunts = pool.map(
                hunt,
                *zip(
                    *(
                        (name, searched, number, options.limit)
                        for number in range(options.repetitions)
                    ),
                    strict=True,
                ),
            )
            found = BugHunts(bug=name, scenario=searched, hunts=tuple(hunts))
            print(row(found), flush=True)
            if options.write:
                write({**read(), name: found}.values())
    return 0


if __name__ == "__main__":
    sys.exit(main())
