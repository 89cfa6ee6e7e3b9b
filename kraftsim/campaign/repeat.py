"""A process that plays the seeds it is told on its standard input and answers with the digest of each event log: one JSON line for each.

Started by `identity` under a hash seed of its own: `python -m kraftsim.campaign.repeat`.
"""

import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from kraftsim.campaign.errand import Errand
from kraftsim.explore.run import play_request


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One seed to play; with `out` the run is left there."""

    name: str
    seed: int
    release: str
    bugs: tuple[str, ...]
    settings: Mapping[str, str]
    workload: Mapping[str, int] = {}
    out: str | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an order."""

    name: str
    seed: int
    sha256: str | None
    event_count: int
    outcome: str
    faults: dict[str, tuple[int, int, int]]
    seconds: float
    cpu_seconds: float


def main() -> None:
    """Play until the other end is closed."""
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(msgspec.json.encode(_play(msgspec.json.decode(line, type=Order))) + b"\n")
        sys.stdout.buffer.flush()


def _play(order: Order) -> Answer:
    began = time.process_time()
    errand = Errand(name=order.name, seed=order.seed, release=order.release, bugs=order.bugs, settings=order.settings)
    request = replace(errand.request(), workload=order.workload)
    result = play_request(request, None if order.out is None else Path(order.out))
    return Answer(
        name=order.name,
        seed=order.seed,
        sha256=result.events_sha256,
        event_count=result.event_count,
        outcome=result.outcome,
        faults=result.faults,
        seconds=result.seconds,
        cpu_seconds=time.process_time() - began,
    )


if __name__ == "__main__":
    main()
