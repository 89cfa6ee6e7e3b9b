"""`make bench` runs all benchmarks, one after the other; `make bench ARGS=ids` runs one,
ARGS="failover --rounds 20" passes options.

    python -m tools.bench [NAME ...|all] [OPTIONS OF A BENCHMARK]
    python -m tools.bench [NAME ...|all] --json [DIR] [--quick]   a record: DIR/COMMIT.json
    python -m tools.bench compare [REVISION|last-release|FILE] [--benches NAME ...] [--rounds N]
    python -m tools.bench page                                    docs/performance.md again
    python -m tools.bench list                                    names, and what each measures

`--quick` is a set of less than ten minutes. Without DIR a record is kept in tools/bench/history,
and docs/performance.md is written again.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.bench.catalogue import BENCHES

ALL = "all"
WRONG_USE = 3


def main(given: Sequence[str] | None = None) -> int:
    """Run the chosen benchmarks, each in its own process, or one of the other commands."""
    words = list(sys.argv[1:] if given is None else given)
    match words:
        case ["compare", *options]:
            from tools.bench.compare import main as compare

            return compare(options)
        case ["page"]:
            from tools.docs.performance_page import write_page

            return write_page()
        case ["list"]:
            for name, bench in BENCHES.items():
                print(f"{name:20s} {bench.about}{' (text only)' * bool(bench.prints_only)}")
            return 0
        case ["-h" | "--help"]:
            print(__doc__)
            return 0
        case _:
            return run(words)


def run(words: Sequence[str]) -> int:
    """Run benches, with a record if one is asked for."""
    first_option = next(
        (number for number, word in enumerate(words) if word.startswith("-")), len(words)
    )
    names, options = list(words[:first_option]), list(words[first_option:])
    is_quick = "--quick" in options
    if is_quick:
        options.remove("--quick")
    chosen = list(BENCHES) if names in ([], [ALL]) else names
    unknown = [name for name in chosen if name not in BENCHES]
    if unknown:
        print(f"unknown benchmark {unknown[0]} (available: {', '.join(BENCHES)})", file=sys.stderr)
        return WRONG_USE
    if is_quick:
        slow = [name for name in chosen if BENCHES[name].quick is None]
        print(f"not in the quick set: {' '.join(slow) or 'none'}", file=sys.stderr)
        chosen = [name for name in chosen if name not in slow]
    if "--json" in options:
        return _record(chosen, options, is_quick)
    worst = 0
    for name in chosen:
        bench = BENCHES[name]
        print(f"\n== {name}: {bench.about}", file=sys.stderr, flush=True)
        quick = (bench.quick or ()) if is_quick else ()
        command = [sys.executable, "-m", f"tools.bench.bench_{name}", *quick, *options]
        worst = max(worst, subprocess.run(command, check=False).returncode)
    return worst


def _record(chosen: Sequence[str], options: list[str], is_quick: bool) -> int:
    from tools.bench.record import HISTORY, make_record, read_speed_record
    from tools.bench.running import Status
    from tools.docs.performance_page import write_page

    place = options.index("--json")
    directory = None
    if place + 1 < len(options) and not options[place + 1].startswith("-"):
        directory = Path(options.pop(place + 1))
    options.pop(place)
    file = make_record(chosen, options, directory or HISTORY, is_quick=is_quick)
    if directory is None:
        write_page()
    results = read_speed_record(file).benches.values()
    return int(any(each.status is Status.FAILED for each in results))


if __name__ == "__main__":
    sys.exit(main())
