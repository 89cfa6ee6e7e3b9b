"""`make mutants`: put wrong rules in, one at a time, and see whether anybody notices: first the tests of the core, then the campaign.

    python -m mutants [NAME ...] [--stage tests|stories|both] [--jobs N] [--runs 200] [--cpu-seconds 120] [--resume]

A NAME may hold * and ?. Without names all of them, and results of mutants that are gone are dropped; with --resume only the stages that have no
result yet, or whose function has changed since. Stories are played of what no test notices; with --stage both, of all mutants. Results go to
docs/mutants.json; `make docs` makes the page of them.
Exit code: 0 every mutant is found or said to be equivalent, 1 one survived or was found although it is said to be equivalent, 2 a seed or a test that
found something is not clean without a mutant, 3 wrong arguments.
"""

import argparse
import os
import sys
from fnmatch import fnmatch

from kraftsim.cli.progress import progress
from mutants.campaign import Budget, current, failing_controls, hunt_all, is_open, unclean_controls
from mutants.catalogue import mutants
from mutants.hunt import Finding
from mutants.results import RESULTS, read, write


def main() -> int:
    """Hunt what was chosen and say what came of it."""
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--stage", choices=("tests", "stories", "both"), help="only one of them; or both, whatever the first has found")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes at a time (default: processors)")
    parser.add_argument("--runs", type=int, default=200, help="after so many a mutant has survived (default: 200)")
    parser.add_argument("--cpu-seconds", type=float, default=120.0, help="after so many a mutant has survived (default: 120)")
    parser.add_argument("--resume", action="store_true", help="keep the results that still hold")
    given = parser.parse_args()
    chosen = [each for each in mutants() if not given.names or any(fnmatch(each.name, name) for name in given.names)]
    if not chosen:
        print(f"no mutant is called {' or '.join(given.names)}", file=sys.stderr)
        return 3
    known = read()
    budget = Budget(
        runs=0 if given.stage == "tests" else given.runs,
        cpu_seconds=given.cpu_seconds,
        asks_tests=given.stage != "stories",
        plays_anyway=given.stage in ("stories", "both"),
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

        hunt_all(open_hunts, budget, jobs=given.jobs, done=done, known=still_hold)
    found = [results[each.name] for each in chosen]
    fresh = [finding for finding in found if finding != still_hold.get(finding.name)]
    failing = failing_controls(fresh, jobs=given.jobs)
    for test in failing:
        print(f"FAILS without a mutant: {test}", flush=True)
    unclean = unclean_controls([] if given.stage == "tests" else fresh, {each.name: each.release for each in chosen}, jobs=given.jobs)
    for release, story, seed in unclean:
        print(f"NOT CLEAN without a mutant: {story}, seed {seed}{f', release {release}' if release else ''}", flush=True)
    equivalent = {each.name for each in chosen if each.equivalent}
    wrong = [each.name for each in found if (bool(each.how) if each.name in equivalent else not each.is_found)]
    print(
        f"{len(found)} mutants, {sum(each.is_found for each in found)} found, {len(equivalent)} said to be equivalent in stories; in {RESULTS.name}"
    )
    if wrong:
        print(f"survived, or found against what is said of it: {', '.join(wrong)}")
    return 2 if unclean or failing else 1 if wrong else 0


def _line(finding: Finding) -> str:
    told = [f"{finding.name}:"]
    if finding.test:
        told.append(f"{finding.test} ({finding.test_said[:120]})")
    if finding.how:
        told.append(
            f"{finding.how} {', '.join(finding.by)} in {finding.scenario} seed {finding.seed}, run {finding.runs}, {finding.cpu_seconds:.1f} CPU s"
        )
    elif finding.runs:
        told.append(f"survived {finding.runs} runs, {finding.cpu_seconds:.1f} CPU s")
    elif not finding.test:
        told.append("no test notices")
    return " ".join(told)


if __name__ == "__main__":
    sys.exit(main())
