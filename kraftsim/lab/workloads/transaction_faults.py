"""Faults of the scenarios with transactions on one controller and three brokers.

Brokers are killed, paused and isolated, also right after they wrote a transaction state, a marker
or a pending offset; requests and responses of transactions are lost, and clocks jump.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, Fault, OnEvent, OnFrame
from kraftsim.lab.workloads.drawn_faults import Failures, clock_jump, drawn_time, peers_of

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

BROKERS = ("broker-1", "broker-2", "broker-3")
FAILURES = Failures(peers=peers_of(BROKERS), duration_ms=(300, 6000))
(
    PRODUCE,
    FIND_COORDINATOR,
    ADD_PARTITIONS,
    ADD_OFFSETS,
    END_TXN,
    WRITE_MARKERS,
    TXN_OFFSET_COMMIT,
    OFFSET_FETCH,
) = 0, 10, 24, 25, 26, 27, 28, 9
TRANSACTIONAL = (
    PRODUCE,
    ADD_PARTITIONS,
    ADD_OFFSETS,
    END_TXN,
    END_TXN,
    WRITE_MARKERS,
    WRITE_MARKERS,
    TXN_OFFSET_COMMIT,
    OFFSET_FETCH,
)
WORK_SECONDS = 8.0
MOMENTS: tuple[tuple[str, int], ...] = (
    ("TransactionStateChanged", 150),
    ("TransactionStateChanged", 150),
    ("MarkerAppended", 80),
    ("LastStableOffsetMoved", 100),
    ("PendingOffsetAdded", 40),
    ("OffsetMaterialised", 40),
    ("BatchAppended", 300),
    ("LeaderElected", 30),
    ("GroupsLoaded", 6),
    ("IsrChangeAsked", 6),
)
"""Events after which a broker failure is most revealing, and their approximate number per run."""


def draw_transaction_faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw three to eight faults; over sockets, without event triggers and clock faults, only timed
    ones.
    """
    if mode is not Mode.SIM:
        return tuple(_timed(random) for _ in range(random.randint(1, 3)))
    draws = (_kill, _kill, _kill, _timed, _on_the_wire, _on_the_wire, _clock)
    return tuple(random.choice(draws)(random) for _ in range(random.randint(3, 8)))


def _kill(random: "Random") -> Fault:
    """A broker is killed, paused or isolated right after an event."""
    kind, times_max = random.choice(MOMENTS)
    trigger = OnEvent(kind=kind, nth=random.randint(1, times_max))
    return FAILURES.draw(random, AT_THE_TRIGGER, trigger)


def _timed(random: "Random") -> Fault:
    return FAILURES.draw(
        random, random.choice(BROKERS), drawn_time(random, WORK_SECONDS, from_ms=100)
    )


def _on_the_wire(random: "Random") -> Fault:
    """A request or response of a transaction is lost."""
    api_key, is_response = random.choice(TRANSACTIONAL), random.random() < 0.7
    trigger = OnFrame(
        api_key=api_key, is_response=is_response, nth=random.randint(1, 60), moment="before"
    )
    return Fault(
        kind="lost-reply" if is_response and random.random() < 0.7 else "cut-connection",
        target=AT_THE_TRIGGER,
        trigger=trigger,
    )


def _clock(random: "Random") -> Fault:
    return clock_jump(random, BROKERS, WORK_SECONDS)
