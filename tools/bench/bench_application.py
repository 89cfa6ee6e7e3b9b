"""Measures an aiokafka application in virtual time, the one of docs/your-application.md: CPU
seconds of a seed, and whether each seed gives the same event log under two hash seeds of the
caller.

python -m tools.bench.bench_application [--seeds 200] [--jobs 2]
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from tools.bench.result import Basis, report_cost

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "your-application.md"
HASH_SEEDS = ("1", "77")
RUN = """
import json, sys
import kraftsim, test_transform
from kraftsim.lab.explore import isolated

if __name__ == "__main__":
    seeds, jobs = map(int, sys.argv[1:])
    test = test_transform.test_each_order_becomes_one_invoice
    done = kraftsim.simulate_seeds(test, seeds=seeds, jobs=jobs, keep_going=True)
    print(json.dumps({
        "digests": [each.events_sha256 for each in done.results],
        "outcomes": [each.outcome for each in done.results],
        "seconds": sum(each.seconds for each in done.results),
        "events": sum(each.event_count for each in done.results),
        "cpu_seconds": isolated.cpu_seconds(),
    }))
"""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What one process found: per seed, and in all."""

    digests: list[str]
    outcomes: list[str]
    seconds: float
    events: int
    cpu_seconds: float


def main() -> None:
    """Run the seeds twice and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        _write_project(Path(temporary))
        first, second = (
            _run(Path(temporary), hash_seed, arguments.seeds, arguments.jobs)
            for hash_seed in HASH_SEEDS
        )
    same = sum(one == other for one, other in zip(first.digests, second.digests, strict=True))
    seeds = arguments.seeds
    print(f"{same} of {seeds} seeds identical under hash seeds {' and '.join(HASH_SEEDS)}")
    for found in (first, second):
        print(
            f"{found.seconds / seeds:.1f} virtual s and {found.events / seeds:.0f} events a seed; "
            f"{found.outcomes.count('ok')} of {seeds} clean"
        )
    report_cost(
        "application.seed",
        "a seed of an aiokafka application in virtual time",
        "CPU s",
        [found.cpu_seconds / seeds for found in (first, second)],
        basis=Basis.CPU,
    )


def _write_project(directory: Path) -> None:
    """Write the application and the test of the page."""
    for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        name = re.match(r"# (\w+\.py)\n", text)
        if name is not None:
            (directory / name[1]).write_text(text)
    (directory / "run.py").write_text(RUN)


def _run(directory: Path, hash_seed: str, seeds: int, jobs: int) -> Found:
    done = subprocess.run(
        [sys.executable, "run.py", str(seeds), str(jobs)],
        cwd=directory,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=Found)


if __name__ == "__main__":
    main()
