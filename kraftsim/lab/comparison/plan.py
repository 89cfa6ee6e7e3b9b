"""The plan of one run, drawn from a seed before anything runs; it is the same for every design that
is compared.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the seed)

BROKERS: Final = 3
WRITERS: Final = 3
RECORDS_EACH: Final = 80
PAUSE_MS: Final = 40
"""Between two records of a writer, on average."""
BURSTS: Final = (1, 10, 20)
"""How many records each writer sends in one burst."""
EXPIRE_MS: Final = 4000
"""Brokers expire the state of a producer that has been idle for this long, in every design."""
AFTERWARDS_RECORDS: Final = 10
"""How many records a zombie writes after it resumes, before it learns that another instance has
taken over.
"""


class MishapKind(StrEnum):
    """What goes wrong."""

    KILL = "a broker is killed and restarts"
    PAUSE = "a broker is paused, and meanwhile the connections of all writers break"
    CUT = "a writer's connections break"
    ZOMBIE = "a writer is paused, and a successor takes over its work"
    SLEEP = "a writer is paused for longer than producer.id.expiration.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mishap:
    """One mishap.

    `target`: number of the broker (from 1) or of the writer (from 0). Times are from the first
    record on.
    """

    kind: MishapKind
    target: int
    at_ms: int
    duration_ms: int = 0
    successor_after_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonPlan:
    """A workload and its mishaps."""

    seed: int
    mishaps: tuple[Mishap, ...]
    writers: int = WRITERS
    records_each: int = RECORDS_EACH
    pause_ms: int = PAUSE_MS
    bursts: tuple[int, ...] = BURSTS


def draw_plan(seed: int, random: "Random") -> ComparisonPlan:
    """Draw up to two kills and a pause of brokers, broken connections, a zombie, and a writer that
    pauses too long.
    """
    mishaps = [
        Mishap(
            kind=MishapKind.KILL,
            target=random.randint(1, BROKERS),
            at_ms=random.randint(300, 1200) + 6000 * number,
            duration_ms=random.randint(200, 5000),
        )
        for number in range(random.randint(1, 2))
    ]
    for _ in range(random.randint(0, 2)):
        mishaps.append(
            Mishap(
                kind=MishapKind.PAUSE,
                target=random.randint(1, BROKERS),
                at_ms=random.randint(100, 3000),
                duration_ms=random.randint(100, 2500),
            )
        )
    for _ in range(random.randint(1, 4)):
        mishaps.append(
            Mishap(
                kind=MishapKind.CUT,
                target=random.randrange(WRITERS),
                at_ms=random.randint(50, 3000),
            )
        )
    zombie, sleeper = random.sample(range(WRITERS), 2)
    if random.random() < 0.7:
        duration_ms = random.randint(2500, 6000)
        mishaps.append(
            Mishap(
                kind=MishapKind.ZOMBIE,
                target=zombie,
                at_ms=random.randint(500, 2500),
                duration_ms=duration_ms,
                successor_after_ms=random.randint(200, duration_ms - 1000),
            )
        )
    if random.random() < 0.7:
        mishaps.append(
            Mishap(
                kind=MishapKind.SLEEP,
                target=sleeper,
                at_ms=random.randint(500, 2500),
                duration_ms=EXPIRE_MS + random.randint(1000, 3000),
            )
        )
    return ComparisonPlan(
        seed=seed,
        mishaps=tuple(sorted(mishaps, key=lambda each: (each.at_ms, each.kind, each.target))),
    )
