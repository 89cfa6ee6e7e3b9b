"""A process that plays the seeds it is told on its standard input and answers with the digest of each event log: one JSON line for each.

Started by `identity` under a hash seed of its own: `python -m kraftsim.campaign.repeat`.
"""

import sys
import time
from pathlib import Path

import msgspec

from kraftsim.campaign.errand import Errand
from kraftsim.explore.run import play_request


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an errand."""

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
        sys.stdout.buffer.write(msgspec.json.encode(_play(msgspec.json.decode(line, type=Errand))) + b"\n")
        sys.stdout.buffer.flush()


def _play(errand: Errand) -> Answer:
    """Play a run, and leave it in the directory `out` if there is one."""
    began = time.process_time()
    result = play_request(errand.request(), None if errand.out is None else Path(errand.out))
    return Answer(
        name=errand.name,
        seed=errand.seed,
        sha256=result.events_sha256,
        event_count=result.event_count,
        outcome=result.outcome,
        faults=result.faults,
        seconds=result.seconds,
        cpu_seconds=time.process_time() - began,
    )


if __name__ == "__main__":
    main()
