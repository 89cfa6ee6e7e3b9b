"""How many seeds, and how much CPU time, it takes to find each historical bug that can be put back.

python -m bench.bench_bugs [--scenario NAME] [--repetitions 20] [--limit 2000] [--jobs N] [--bug NAME ...]

Each repetition plays seeds of a range of its own, one after the other, until an invariant is violated that the bug is said to be caught by; a range
that ends without is reported as such. A bug that shows in every run, before it does any harm, is looked for until it does. Bugs of brokers and of
clients are hunted in the story in which they hide, all others in quorum_under_faults. Prints a table in Markdown.
"""

import argparse
import multiprocessing
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from statistics import median
from typing import NamedTuple

from kraftsim.bugs.bug import BUGS, bug
from kraftsim.campaign.errand import Errand, carry_out_carefully
from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.explore.search import faults_of
from kraftsim.world.chance import stream

STORIES = {
    "KAFKA-1211": "leaders_fail_under_idempotent_load",
    "KAFKA-5435": "answers_get_lost",
    "KAFKA-6683": "old_leader_cuts_and_leads_again",
    "KAFKA-7692": "producers_are_remembered",
    "librdkafka-forgotten-sequence": "topic_vanishes_from_metadata",
    "KAFKA-5247": "old_and_new_clients_commit_offsets",
    "KAFKA-5376": "exactly_once_under_faults",
    "KAFKA-6119": "transaction_times_out",
    "KAFKA-9346": "exactly_once_under_faults",
    "KAFKA-9666": "zombie_fenced_by_epoch",
    "KAFKA-9807": "exactly_once_under_faults",
    "KAFKA-10080": "coordinator_failover_in_every_state",
    "KAFKA-14402": "transaction_times_out",
    "KAFKA-14884": "transaction_times_out",
    "KAFKA-15784": "zombie_fenced_by_generation",
    "KAFKA-16352": "coordinator_failover_in_every_state",
    "KAFKA-17754": "end_of_a_transaction_comes_late",
}
ANY_OTHER = "quorum_under_faults"
SHOWS_AT_ONCE = frozenset({"producer-snapshot-of-appended-only"})
"""Broken by what a bug is, long before anybody is harmed."""
RANGE = 100_000
"""How far the ranges of two repetitions are apart: none reaches the next."""


class Hunt(NamedTuple):
    """One repetition: seeds played until the bug was found, or all of the range, and what was violated then."""

    bug: str
    is_found: bool
    seeds: int
    cpu_seconds: float
    caught_by: tuple[str, ...]
    is_by_story: bool


def hunt(name: str, scenario_name: str, repetition: int, limit: int) -> Hunt:
    """Play seeds of one range until the bug is found."""
    wanted = set(bug(name).caught_by) - SHOWS_AT_ONCE
    spent = 0.0
    first = 1 + repetition * RANGE
    for number, seed in enumerate(range(first, first + limit), 1):
        done = carry_out_carefully(Errand(name=scenario_name, seed=seed, bugs=(name,)))
        spent += done.cpu_seconds
        if wanted & set(done.result.invariants_violated):
            story = scenario(scenario_name).faults(stream(seed, "harness", 1, "faults"), Mode.SIM)
            is_by_story = faults_of(scenario(scenario_name), seed, Mode.SIM) == story
            return Hunt(name, True, number, spent, done.result.invariants_violated, is_by_story)
        if done.result.outcome != "ok" and not SHOWS_AT_ONCE.issuperset(done.result.invariants_violated):
            print(f"{name}, seed {seed}: {done.result.outcome} {done.result.invariants_violated} {done.result.trouble}", file=sys.stderr)
    return Hunt(name, False, limit, spent, (), False)


def row(name: str, scenario_name: str, hunts: list[Hunt]) -> str:
    """Return the line of the table for one bug."""
    seeds, spent = [each.seeds for each in hunts], [each.cpu_seconds for each in hunts]
    found = [each for each in hunts if each.is_found]
    caught = Counter(invariant for each in found for invariant in each.caught_by)
    by_story = sum(each.is_by_story for each in found)
    best = ", ".join(f"{invariant} ({count})" for invariant, count in caught.most_common(3))
    return (
        f"| {name} | {bug(name).title} | {scenario_name}"
        f" | {len(found)} of {len(hunts)} | {median(seeds):g} | {max(seeds)} | {median(spent):.1f} | {max(spent):.1f} |"
        f" {by_story} | {best or 'nothing'} |"
    )


def main() -> int:
    """Hunt every bug as often as asked, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", help="for all of them")
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--limit", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--bug", action="append", default=[])
    options = parser.parse_args()
    names = [bug(name).name for name in options.bug] or list(BUGS.names())
    print(f"{options.repetitions} repetitions with ranges of seeds {RANGE} apart, at most {options.limit} seeds each")
    print("| bug | what it is | story | found | seeds: median | worst | CPU seconds: median | worst | by the story's faults alone | caught by |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for name in names:
            story = options.scenario or STORIES.get(name, ANY_OTHER)
            hunts = list(pool.map(hunt, *zip(*((name, story, number, options.limit) for number in range(options.repetitions)), strict=True)))
            print(row(name, story, hunts), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
