"""Measures KIP-447's claims on time and correctness in virtual time: takeovers, zombie members,
dropped conditions, old brokers.

python -m tools.bench.bench_fencing [--quick]

Every number follows from the seed, and is of the simulated network and clock.
"""

import argparse
import sys
from collections.abc import Iterable

from kraftsim.lab.workloads.transform_app import Point, Variant
from tools.bench.fencing.measurements import (
    CONDITIONS,
    aborted_needlessly,
    doubled_where,
    fetched_after_rebalances,
    first_commit_to_old_brokers,
    takeover,
    zombie_effects,
)

TIMEOUTS_MS = (1000, 10_000, 60_000)
PAUSES_MS = (500, 5000, 30_000)


def main() -> int:
    """Run all scenarios, and print tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="leave out the takeover that takes a minute"
    )
    options = parser.parse_args()
    timeouts = TIMEOUTS_MS[:-1] if options.quick else TIMEOUTS_MS
    _table(
        "a member ends, another one takes over (session timeout 6 s)",
        ("how", "transaction.timeout.ms", "ms", "retriable errors", "memberships lost"),
        _takeovers(timeouts),
    )
    _table(
        "a member is paused within a transaction: is it aborted?",
        ("pause, ms", *(f"timeout {each:,}" for each in TIMEOUTS_MS)),
        _pauses(),
    )
    _table(
        "a member resumes after its partition was reassigned",
        ("variant", "records duplicated of 20", "successor waits", "zombie fenced"),
        _awakenings(),
    )
    _table(
        "KIP-447's template, and each condition dropped",
        ("condition", "records duplicated of 20"),
        ((each, doubled_where(each)) for each in CONDITIONS),
    )
    _table(
        "a first commit for a member at a broker of 2.4",
        ("downgrades", "outcome"),
        ((each, first_commit_to_old_brokers(downgrades=each)) for each in (True, False)),
    )
    _table(
        "OffsetFetch after a rebalance",
        ("assignor", "assignments", "followed by OffsetFetch", "for retained partitions"),
        _fetches(),
    )
    return 0


def _takeovers(timeouts: Iterable[int]) -> Iterable[tuple[object, ...]]:
    for timeout_ms in timeouts:
        found = takeover(dies=True, transaction_ms=timeout_ms)
        yield "dies", timeout_ms, found.milliseconds, found.retriable_errors, found.memberships_lost
    found = takeover(dies=False, transaction_ms=10_000)
    yield (
        "leaves the group",
        10_000,
        found.milliseconds,
        found.retriable_errors,
        found.memberships_lost,
    )


def _pauses() -> Iterable[tuple[object, ...]]:
    for pause_ms in PAUSES_MS:
        yield (
            pause_ms,
            *(
                "aborted" if aborted_needlessly(pause_ms, timeout_ms) else "-"
                for timeout_ms in TIMEOUTS_MS
            ),
        )


def _awakenings() -> Iterable[tuple[object, ...]]:
    runs = {
        "as shipped": zombie_effects(),
        "the text's fencing": zombie_effects(fencing="document"),
        "an assignment that is a second old": zombie_effects(fencing="copied-assignment"),
        "no fencing": zombie_effects(fencing="none"),
        "an old consumer follows, as shipped": zombie_effects(
            point=Point.OFFSETS_SENT, old_successor=True
        ),
        "an old consumer follows, the text's": zombie_effects(
            point=Point.OFFSETS_SENT, old_successor=True, fencing="document"
        ),
        "of tasks, then of threads: one bounce": zombie_effects(
            old_zombie=True, variants=(Variant.PER_TASK, Variant.PER_THREAD)
        ),
        "of tasks that names its member, then of threads": zombie_effects(
            variants=(Variant.PER_TASK, Variant.PER_THREAD)
        ),
        "brokers of 2.4": zombie_effects(release_name="2.4", zookeeper=True),
        "brokers of 2.5 that speak 2.3 to each other": zombie_effects(
            release_name="2.5", zookeeper=True, settings={"inter.broker.protocol.version": "2.3"}
        ),
    }
    for variant, found in runs.items():
        yield variant, found.doubled, found.successor_errors, found.refused


def _fetches() -> Iterable[tuple[object, ...]]:
    for assignor in ("range", "cooperative-sticky"):
        found = fetched_after_rebalances(assignor)
        yield assignor, found.assignments, found.followed, found.kept_asked


def _table(title: str, head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> None:
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(map(_shown, row))} |", flush=True)


def _shown(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)


if __name__ == "__main__":
    sys.exit(main())
