"""`make raft-properties`: run the seven properties of Apache Kafka's RaftEventSimulationTest, each
with the requested number of seeds.

    python -m tests.simulate.raft_properties [NAME ...] [--seeds 1000] [--first-seed 1] [--jobs N]
    [--minutes M]

NAME may contain * and ?. A violation is printed with the line that replays it; the output ends with
a table of all properties. Exit code: 0 no violation, 1 a violation, 3 wrong arguments.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatch
from multiprocessing import get_context

from tests.simulate.raft_properties.properties import PROPERTIES
from tests.simulate.raft_properties.total import Total, run_chunk

CHUNK = 10
"""The number of seeds per process and task."""
SECONDS_BETWEEN_LINES = 15


def main() -> int:
    """Run the selection and print the results."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulate.raft_properties", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument(
        "--seeds", type=int, default=1000, help="seeds of each property (default: 1000)"
    )
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument(
        "--jobs",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="processes at a time (default: processors)",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=float("inf"),
        help="print the results after so long, whether all seeds ran or not",
    )
    given = parser.parse_args()
    chosen = [
        name
        for name in PROPERTIES
        if not given.names or any(fnmatch(name, pattern) for pattern in given.names)
    ]
    if not chosen:
        print(
            f"no property is called {' or '.join(given.names)}; there are: {', '.join(PROPERTIES)}",
            file=sys.stderr,
        )
        return 3
    last = given.first_seed + given.seeds
    chunks = [
        (name, first, min(first + CHUNK, last))
        for first in range(given.first_seed, last, CHUNK)
        for name in chosen
    ]
    totals = {name: Total() for name in chosen}
    began = reported = time.monotonic()
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        for done, (name, total) in enumerate(pool.map(run_chunk, chunks), 1):
            totals[name].add(total)
            for line in total.broken:
                print(line, flush=True)
            now = time.monotonic()
            if now - reported > SECONDS_BETWEEN_LINES or done == len(chunks):
                reported = now
                seeds = sum(each.seeds for each in totals.values())
                rate = done / (now - began)
                progress = (
                    f"{seeds} of {given.seeds * len(chosen)} seeds, "
                    f"{seeds / (now - began):.1f}/s, {(len(chunks) - done) / rate:.0f} s left"
                )
                print(progress, file=sys.stderr, flush=True)
            if now - began > given.minutes * 60:
                pool.shutdown(cancel_futures=True)
                break
    print("\n".join(_table(totals)))
    return 1 if any(total.broken for total in totals.values()) else 0


def _table(totals: dict[str, Total]) -> Iterator[str]:
    yield (
        "| property | seeds | broken | CPU seconds | virtual seconds | checks of all invariants "
        "| most epochs |"
    )
    yield "|---|---|---|---|---|---|---|"
    for name, each in totals.items():
        words = name.replace("_", " ")
        cells = (
            each.seeds,
            len(each.broken),
            f"{each.cpu_seconds:.0f}",
            each.virtual_ms // 1000,
            each.looks,
            each.most_epochs,
        )
        yield f"| {words} | {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    sys.exit(main())
