"""`make mutants`: put wrong rules in, one at a time, and see whether the campaign notices.

    python -m mutants [NAME ...] [--jobs N] [--runs 200] [--cpu-seconds 120] [--resume]

A NAME may hold * and ?. Without names all of them, and results of mutants that are gone are dropped; with --resume only those that have no result
yet, or whose function has changed since. Results go to docs/mutants.json; `make docs` makes the page of them.
Exit code: 0 every mutant is found or said to be equivalent, 1 one survived or was found although it is said to be equivalent, 2 a seed that found
something is not clean without a mutant, 3 wrong arguments.
"""

import argparse
import os
import sys
from fnmatch import fnmatch

from kraftsim.cli.progress import progress
from mutants.campaign import Budget, hunt_all, kept, unclean_controls
from mutants.catalogue import mutants
from mutants.hunt import Finding
from mutants.results import RESULTS, read, write


def main() -> int:
    """Hunt what was chosen and say what came of it."""
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
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
    results = known if given.names else {}
    still_hold = kept(chosen, known) if given.resume else {}
    results |= still_hold
    open_hunts = [each for each in chosen if each.name not in still_hold]
    with progress("mutants", len(open_hunts)) as advance:

        def done(finding: Finding) -> None:
            results[finding.name] = finding
            write(results.values())
            advance(1)
            print(_line(finding), flush=True)

        hunt_all(open_hunts, Budget(runs=given.runs, cpu_seconds=given.cpu_seconds), jobs=given.jobs, done=done)
    found = [results[each.name] for each in chosen]
    unclean = unclean_controls(found, {each.name: each.release for each in chosen}, jobs=given.jobs)
    for release, story, seed in unclean:
        print(f"NOT CLEAN without a mutant: {story}, seed {seed}{f', release {release}' if release else ''}", flush=True)
    equivalent = {each.name for each in chosen if each.equivalent}
    wrong = [each.name for each in found if each.is_found == (each.name in equivalent)]
    print(f"{len(found)} mutants, {sum(each.is_found for each in found)} found, {len(equivalent)} said to be equivalent; in {RESULTS.name}")
    if wrong:
        print(f"survived, or found against what is said of it: {', '.join(wrong)}")
    return 2 if unclean else 1 if wrong else 0


def _line(finding: Finding) -> str:
    if not finding.is_found:
        return f"{finding.name}: survived {finding.runs} runs, {finding.cpu_seconds:.1f} CPU s"
    where = f"{finding.scenario} seed {finding.seed}"
    return f"{finding.name}: {finding.how} {', '.join(finding.by)} in {where}, run {finding.runs}, {finding.cpu_seconds:.1f} CPU s"


if __name__ == "__main__":
    sys.exit(main())
