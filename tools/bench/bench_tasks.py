"""Compares a producer per task with one per thread (KIP-447), by the number of input partitions:
tables and a plot.

python -m tools.bench.bench_tasks [--partitions 10 100 1000] [--replicas 1] [--keep]

Three threads copy a topic of three brokers exactly once in simulation, two records in each
partition; times are virtual, of the simulated network and disks. The memory of a producer is also
measured on a broker process. `--keep` writes docs/producer-per-task.json and the plot; `make docs`
makes the page from them.
"""

import argparse
import json
import sys

from tools.bench.tasks.counting import count
from tools.bench.tasks.plot import picture
from tools.bench.tasks.weighing import weigh
from tools.docs.tasks_page import FILE, PICTURE, Found, tables


def main() -> int:
    """Measure for each number of partitions, print the tables, and write them with --keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    weights = weigh()
    rows = []
    for partitions in options.partitions:
        rows += count(partitions, options.replicas)
        print(
            f"{partitions} input partitions: {rows[-1].cpu_seconds} CPU s",
            file=sys.stderr,
            flush=True,
        )
    found: Found = {
        "rows": [row.as_row() for row in rows],
        "bytes": {place: round(weight) for place, weight in weights.items()},
    }
    print("\n".join(tables(found)))
    if options.keep:
        FILE.write_text(json.dumps(found, indent=1) + "\n")
        PICTURE.write_text(picture(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
