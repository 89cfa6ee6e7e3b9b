"""Run a scenario in virtual time and count its events: each line of the event log is one JSON
object.
"""

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path

from kraftsim.lab.explore.run import run_scenario

SCENARIO = "producer_ids_survive_failover"


def events(run: Path) -> Counter[tuple[str, str]]:
    """Count events by node and kind."""
    counts: Counter[tuple[str, str]] = Counter()
    for file in sorted(run.rglob("*.jsonl")):
        for line in file.read_text().splitlines():
            event = json.loads(line)
            counts[event["node"], event["kind"]] += 1
    return counts


def main() -> None:
    """Print how many blocks of producer ids each controller allocated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        run_scenario(SCENARIO, mode="sim", seed=options.seed, out=run)
        counts = events(run)
    print(f"{sum(counts.values())} events of {len({kind for _, kind in counts})} kinds")
    for (node, kind), count in sorted(counts.items()):
        if kind == "ProducerIdBlockAllocated":
            print(f"{node} allocated {count} blocks of producer ids")


if __name__ == "__main__":
    main()
