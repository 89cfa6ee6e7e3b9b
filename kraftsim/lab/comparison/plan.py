"""What is compared: the designs by name, the plan of a run, drawn from a seed before anything runs,
and the outcome, counted from the logs.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from kraftsim.clients.rules_idempotent_producer import IdempotentProducer
from kraftsim.clients.rules_producer_steps import ProducerSettings
from kraftsim.clients.rules_producer_variants import WindowedProducer

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the seed)


# --------------------------------------------------------------------------------------------------
# The plan of one run, drawn from a seed before anything runs; it is the same for every design that
# is compared

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


# --------------------------------------------------------------------------------------------------
# The designs that are compared, by name
#
# Source: KIP-98 and KIP-360 (released before and since 2.5), KIP-890 (both versions of
# transactions), KIP-758, the lease_pid draft.

EXPIRY: Final = {
    "producer.id.expiration.ms": str(EXPIRE_MS),
    "producer.id.expiration.check.interval.ms": "500",
}


class Writing(Enum):
    """How an application writes."""

    IDEMPOTENT = "idempotent"
    TRANSACTIONAL = "transactional"
    LEASING = "leasing"


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One design.

    `settings` are those of its brokers; `features` are levels that differ from the defaults of the
    release, by name.
    """

    name: str
    title: str
    writing: Writing
    release: str = "3.9"
    features: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    node_settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    rules: type[IdempotentProducer] = IdempotentProducer
    producer: ProducerSettings = field(
        default_factory=lambda: ProducerSettings(
            linger_ms=0, retry_backoff_ms=50, request_timeout_ms=3000
        )
    )


SYSTEMS: Final = (
    System(
        name="kafka-before-2.5",
        title="Kafka, idempotent, before 2.5: unknown producers are refused (59)",
        writing=Writing.IDEMPOTENT,
        settings={**EXPIRY, "kraftsim.unknown.producer": "unknown-producer-id"},
    ),
    System(
        name="kafka-since-2.5",
        title="Kafka, idempotent, since 2.5: unknown producers are accepted",
        writing=Writing.IDEMPOTENT,
        settings=EXPIRY,
    ),
    System(
        name="kafka-transactions-3.9",
        title="Kafka, transactions of 3.9, which has no versions",
        writing=Writing.TRANSACTIONAL,
        settings=EXPIRY,
    ),
    System(
        name="kafka-transactions-1",
        title="Kafka, transactions of version 1 (4.1)",
        writing=Writing.TRANSACTIONAL,
        release="4.1",
        features={"transaction.version": 1},
        settings=EXPIRY,
    ),
    System(
        name="kafka-transactions-2",
        title="Kafka, transactions of version 2 (4.1)",
        writing=Writing.TRANSACTIONAL,
        release="4.1",
        settings=EXPIRY,
    ),
    System(
        name="kip-758-phase-1",
        title="KIP-758, first phase: the latest batch, five requests",
        writing=Writing.IDEMPOTENT,
        settings={**EXPIRY, "kraftsim.producer.state": "latest-batch"},
    ),
    System(
        name="kip-758-phase-2",
        title="KIP-758, second phase: the latest batch, a window that is announced",
        writing=Writing.IDEMPOTENT,
        settings={**EXPIRY, "kraftsim.producer.state": "latest-batch-announced"},
        rules=WindowedProducer,
    ),
    System(
        name="kip-758-mixed",
        title="KIP-758, second phase, one broker of three announces a window",
        writing=Writing.IDEMPOTENT,
        settings=EXPIRY,
        node_settings={"broker-1": {"kraftsim.producer.state": "latest-batch-announced"}},
        rules=WindowedProducer,
    ),
    System(
        name="lease-pid",
        title="lease_pid, strict interpretation",
        writing=Writing.LEASING,
        settings={"lease.expire.ms": str(EXPIRE_MS)},
    ),
    System(
        name="lease-pid-first-seen",
        title="lease_pid, time counts from the first message",
        writing=Writing.LEASING,
        settings={"lease.expire.ms": str(EXPIRE_MS), "lease.counts.from": "first-seen"},
    ),
)


def system_named(name: str) -> System:
    """Return a design by name. Raises KeyError that lists the names there are."""
    for system in SYSTEMS:
        if system.name == name:
            return system
    raise KeyError(
        f"unknown design {name} (known designs: {', '.join(system.name for system in SYSTEMS)})"
    )


# --------------------------------------------------------------------------------------------------
# The result of one run of one design, counted from its logs: the key of each record names its
# writer and its number


class ComparisonOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """`doubled`: records more than once in the log.

    `lost`: acknowledged, but not in the log. `missing`: neither acknowledged nor in the log.

    `disordered`: records whose first copy is behind that of a later record of the same writer.
    `refusals`: error responses to records. `silence_ms`: the longest time without an
    acknowledgement after a broker was killed (-1: none was). `ids_used`: producer ids that
    producers received, `ids_taken`: producer ids that were allocated for that, in blocks.
    """

    system: str
    seed: int
    records: int
    doubled: int
    lost: int
    missing: int
    disordered: int
    refusals: int
    fenced: int
    requests: int
    ids_used: int
    ids_taken: int
    silence_ms: int
    finished_ms: int
    trouble: str | None = None


def record_key(writer: int, number: int) -> str:
    """Return the key of a record, made of its writer and its number."""
    return f"{writer}.{number}"


class LogCount(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the records that were to be written, taken from a log."""

    doubled: int
    lost: int
    missing: int
    disordered: int


def count_logs(
    logs: Mapping[int, Sequence[str]], records_each: int, acknowledged: Iterable[str]
) -> LogCount:
    """Count, given the keys in each writer's partition in log order and the keys that were
    acknowledged to some producer.
    """
    acked_keys = set(acknowledged)
    doubled = lost = missing = disordered = 0
    for writer, keys in logs.items():
        copies = Counter(keys)
        for number in range(records_each):
            key = record_key(writer, number)
            doubled += max(copies[key] - 1, 0)
            lost += not copies[key] and key in acked_keys
            missing += not copies[key] and key not in acked_keys
        highest = -1
        for key in dict.fromkeys(keys):
            number = int(key.partition(".")[2])
            disordered += number < highest
            highest = max(highest, number)
    return LogCount(doubled=doubled, lost=lost, missing=missing, disordered=disordered)


def longest_silence_ms(
    kills_ns: Sequence[int],
    acknowledged_ns: Mapping[int, Sequence[int]],
    ends_ns: Mapping[int, int],
) -> int:
    """Return the longest time from a kill to the next acknowledgement of a writer that was still at
    work; -1 where no broker was killed.
    """
    longest = -1
    for kill_ns in kills_ns:
        for writer, times in acknowledged_ns.items():
            if kill_ns >= ends_ns.get(writer, 0):
                continue
            following = next((time for time in times if time > kill_ns), None)
            if following is not None:
                longest = max(longest, (following - kill_ns) // 1_000_000)
    return longest
