"""Measures how far failing runs with 40 and more faults are shrunk, and the cost, with several
historical bugs.

A schedule of --faults faults is drawn for each seed: its own faults, and those of other seeds. Only
runs that fail because of the bug are used: the same run without it has no violation. CPU seconds
are those of all the runs that one process needed to shrink one of them.

python -m tools.bench.bench_shrink [--bugs KAFKA-10527 ...] [--seeds 3] [--faults 40] [--budget 120]
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.shrink import Shrunken, chosen_finding, shrink
from kraftsim.lab.explore.trials import ProbeFinding, probe
from kraftsim.lab.faults.fault import Fault
from tools.bench.result import Basis, report_cost

SCENARIOS = {
    "KAFKA-10533": "producer_ids_survive_failover",
    "KAFKA-13357": "quorum_under_faults",
    "KAFKA-14618": "quorum_under_faults",
    "KAFKA-10527": "quorum_under_faults",
}
SEEDS_MAX = 200
SEEDS_WITHOUT_FAULTS = 3
DRAWS_APART = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A run that fails because of a bug."""

    bug: str
    request: RunRequest
    finding: ProbeFinding


def many_faults(name: str, seed: int, count: int) -> tuple[Fault, ...]:
    """Draw the seed's own schedule, and those of other seeds, until there are enough faults."""
    drawn: list[Fault] = []
    number = 0
    while len(drawn) < count:
        drawn += RunRequest(
            scenario=scenario(name), mode=Mode.SIM, seed=seed + number * DRAWS_APART
        ).schedule()
        number += 1
    return tuple(drawn)


def cases(bug: str, count: int, faults: int) -> Iterator[Case]:
    """Yield runs that fail because of the bug; of several violations, preferably one that needs
    faults.
    """
    name, found = SCENARIOS[bug], 0
    calm = RunRequest(scenario=scenario(name), mode=Mode.SIM, seed=0, bugs=(bug,), faults=())
    anyway = [
        each
        for seed in range(SEEDS_WITHOUT_FAULTS)
        for each in probe(replace(calm, seed=seed)).found
    ]
    for seed in range(1, 1 + SEEDS_MAX):
        request = replace(calm, seed=seed, faults=many_faults(name, seed, faults))
        seen = probe(request)
        if not seen.found:
            continue
        finding = next(
            (each for each in seen.found if each.invariant is not None and each not in anyway),
            chosen_finding(seen),
        )
        if finding in probe(replace(request, bugs=())).found:
            continue
        yield Case(bug=bug, request=request, finding=finding)
        found += 1
        if found == count:
            return


def measured(case: Case, budget: float) -> tuple[Shrunken, float]:
    """Shrink one run; return the result and the CPU seconds of this process."""
    began = time.process_time()
    shrunken = shrink(case.request, invariant=case.finding.invariant, budget_seconds=budget)
    return shrunken, time.process_time() - began


def report_runs(name: str, what: str, left: list[int], costs: list[float]) -> None:
    """Report the cost of shrinking, and the faults that are left."""
    title = f"shrinking {len(left)} {what}"
    report_cost(f"shrink.cpu.{name}", title, "CPU s", costs, basis=Basis.CPU)
    report_cost(f"shrink.faults.{name}", f"{title}: faults left", "faults", left, basis=Basis.SIZE)


def main() -> int:
    """Shrink --seeds runs of each bug, and print the results and the medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bugs", nargs="*", default=list(SCENARIOS))
    parser.add_argument("--seeds", type=int, default=3, help="runs of each bug")
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--budget", type=float, default=120.0)
    options = parser.parse_args()
    left, costs = [], []
    for bug in options.bugs:
        for case in cases(bug, options.seeds, options.faults):
            shrunken, seconds = measured(case, options.budget)
            left.append(len(shrunken.candidate.faults))
            costs.append(seconds)
            print(
                f"{bug} seed {case.request.seed}: {case.finding}: {shrunken.faults_before} "
                f"faults -> {left[-1]}, {shrunken.runs} runs, {seconds:.1f} CPU s, "
                f"{'smallest' if shrunken.is_smallest else 'budget spent'}; "
                f"{shrunken.candidate.controllers} controllers, {shrunken.candidate.brokers} "
                f"brokers, {dict(shrunken.candidate.workload)}",
                flush=True,
            )
    if not left:
        print("no run fails because of a bug")
        return 1
    report_runs("all", "runs", left, costs)
    need = [place for place, count in enumerate(left) if count]
    if need:
        report_runs(
            "need_a_fault",
            "runs that need a fault to fail",
            [left[place] for place in need],
            [costs[place] for place in need],
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
