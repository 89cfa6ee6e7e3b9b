"""`make mutants`: apply one mutant at a time and check that it is detected: first by the tests of
its core, then by the campaign.

    python -m tools.mutants [NAME ...] [--stage tests|scenarios|both|campaign] [--jobs N]
                            [--runs 200] [--cpu-seconds 120] [--resume]

A NAME may contain * and ?. Without names all mutants run, and results of removed mutants are
dropped; with --resume only the stages without a result, or with a changed function. Scenarios run
for mutants that no test detects; with --stage both, for all mutants. With --stage campaign, a
search over all scenarios judges each mutant (`kraftsim campaign`; --cpu-seconds 2000), and nothing
else; results go to docs/mutants-campaign.json. The others go to docs/mutants.json; from both `make
docs` makes the page. Exit code: 0 every mutant is detected or
marked as equivalent, 1 one survived or was detected although it is marked as equivalent, 2 a seed
or test that detected something also fails without a mutant, 3 wrong arguments.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from fnmatch import fnmatch

from kraftsim.cli.progress import progress
from tools.mutants.campaign import (
    Budget,
    current,
    failing_controls,
    is_open,
    judge_by_search,
    run_mutants,
    unclean_controls,
)
from tools.mutants.catalogue import mutants
from tools.mutants.mutant import Mutant
from tools.mutants.mutation_run import Finding
from tools.mutants.results import RESULTS, read, write
from tools.mutants.search_stage import (
    JUDGED,
    SearchFinding,
    is_judged,
    read_judged,
    write_judged,
)


def main() -> int:
    """Run the chosen mutants and print the results."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument(
        "--stage",
        choices=("tests", "scenarios", "both", "campaign"),
        help="only one stage; or both, whatever the first has detected; or the campaign alone",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="processes at a time (default: processors)",
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=200,
        help="runs after which a mutant has survived (default: 200)",
    )
    parser.add_argument(
        "--cpu-seconds",
        type=float,
        default=120.0,
        help="CPU seconds after which a mutant has survived (default: 120)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="keep the results that are still valid"
    )
    given = parser.parse_args()
    chosen = [
        each
        for each in mutants()
        if not given.names or any(fnmatch(each.name, name) for name in given.names)
    ]
    if not chosen:
        print(f"no mutant matches {' or '.join(given.names)}", file=sys.stderr)
        return 3
    if given.stage == "campaign":
        return _campaign(chosen, given.cpu_seconds, given.jobs, is_resumed=given.resume)
    known = read()
    budget = Budget(
        runs=0 if given.stage == "tests" else given.runs,
        cpu_seconds=given.cpu_seconds,
        asks_tests=given.stage != "scenarios",
        always_runs_scenarios=given.stage in ("scenarios", "both"),
    )
    results = known if given.names else {}
    still_hold = current(chosen, known) if given.resume else {}
    results |= still_hold
    open_hunts = [each for each in chosen if is_open(still_hold.get(each.name), budget)]
    with progress("mutants", len(open_hunts)) as advance:

        def done(finding: Finding) -> None:
            results[finding.name] = finding
            write(results.values())
            advance(not is_open(finding, budget))
            print(_line(finding), flush=True)

        run_mutants(open_hunts, budget, jobs=given.jobs, done=done, known=still_hold)
    found = [results[each.name] for each in chosen]
    fresh = [finding for finding in found if finding != still_hold.get(finding.name)]
    failing = failing_controls(fresh, jobs=given.jobs)
    for test in failing:
        print(f"FAILS without a mutant: {test}", flush=True)
    unclean = unclean_controls(
        [] if given.stage == "tests" else fresh,
        {each.name: each.release for each in chosen},
        jobs=given.jobs,
    )
    for release, scenario, seed in unclean:
        print(
            f"NOT CLEAN without a mutant: {scenario}, seed "
            f"{seed}{f', release {release}' if release else ''}",
            flush=True,
        )
    equivalent = {each.name for each in chosen if each.equivalent}
    wrong = [
        each.name
        for each in found
        if (bool(each.how) if each.name in equivalent else not each.is_found)
    ]
    print(
        f"{len(found)} mutants, {sum(each.is_found for each in found)} found, {len(equivalent)} "
        f"marked as equivalent in scenarios; in {RESULTS.name}"
    )
    if wrong:
        print(f"survived, or detected although marked as equivalent: {', '.join(wrong)}")
    return 2 if unclean or failing else 1 if wrong else 0


def _campaign(chosen: Sequence[Mutant], cpu_seconds: float, jobs: int, *, is_resumed: bool) -> int:
    """Judge the chosen mutants by the campaign alone; print and write the results."""
    known = read_judged()
    waiting = [
        each
        for each in chosen
        if not (is_resumed and is_judged(each, known.get(each.name), cpu_seconds))
    ]
    with progress("mutants", len(waiting)) as advance:

        def done(found: SearchFinding) -> None:
            known[found.name] = found
            write_judged(known.values())
            advance(1)
            print(found.line(), flush=True)

        judge_by_search(waiting, cpu_seconds=cpu_seconds, jobs=jobs, done=done)
    judged = [known[each.name] for each in chosen]
    print(
        f"{len(judged)} mutants, {sum(bool(each.finding) for each in judged)} found by the "
        f"campaign alone; in {JUDGED.name}"
    )
    return 1 if any(not known[each.name].finding and not each.equivalent for each in chosen) else 0


def _line(finding: Finding) -> str:
    parts = [f"{finding.name}:"]
    if finding.test:
        parts.append(f"{finding.test} ({finding.test_said[:120]})")
    if finding.how:
        parts.append(
            f"{finding.how} {', '.join(finding.by)} in {finding.scenario} seed {finding.seed}, "
            f"run {finding.runs}, {finding.cpu_seconds:.1f} CPU s"
        )
    elif finding.runs:
        parts.append(f"survived {finding.runs} runs, {finding.cpu_seconds:.1f} CPU s")
    elif not finding.test:
        parts.append("no test detects it")
    return " ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
