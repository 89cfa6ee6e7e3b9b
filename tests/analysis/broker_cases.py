"""Histories of brokers that register, are fenced and request producer-id blocks, clean and
violating: rows for the table in `cases.py`.
"""

from collections.abc import Callable
from random import Random

from kraftsim.events.event import Event
from kraftsim.metadata.events import BrokerFenced, BrokerRegistered
from kraftsim.producer_ids.events import ProducerIdBlockRefused, ProducerIdBlockRequested
from kraftsim.server.events import NodeReady
from tests.analysis.event_factories import elected, received
from tests.analysis.history import History, Row
from tests.analysis.quorum_cases import OK, VACUOUS, VIOLATED, on

NEW_EPOCH = "broker-epoch-per-incarnation"
SESSION_TIMEOUT = "new-controller-awaits-heartbeats"
ONE_REQUEST = "one-block-request-in-flight"
ASKED = ProducerIdBlockRequested(broker_epoch=5)
REFUSED = ProducerIdBlockRefused(error_code=7, reason="no response")


def joins(
    broker_epoch: int, incarnation_id: str = "i", *, broker_id: int = 1, fenced: bool = True
) -> BrokerRegistered:
    """A registration."""
    return BrokerRegistered(
        broker_id=broker_id, broker_epoch=broker_epoch, incarnation_id=incarnation_id, fenced=fenced
    )


def fences(session_timeout_ms: int) -> BrokerFenced:
    """A broker is fenced, for missing heartbeats or (0) for another reason."""
    return BrokerFenced(
        broker_id=1, broker_epoch=5, reason="r", session_timeout_ms=session_timeout_ms
    )


def microseconds(count: int) -> list[tuple[str, Event]]:
    """Advance the time of a history."""
    return [("somebody", NodeReady())] * count


BROKER_ROWS: list[Row] = [
    ("two incarnations, two epochs", NEW_EPOCH, on("c", joins(5), joins(9, "j")), OK, 2),
    ("one epoch at two brokers", NEW_EPOCH, on("c", joins(5), joins(5, "j", broker_id=2)), OK, 2),
    (
        "the same incarnation registers again unfenced",
        NEW_EPOCH,
        on("c", joins(5), joins(5, fenced=False)),
        OK,
        2,
    ),
    (
        "two incarnations with one epoch",
        NEW_EPOCH,
        on("c", joins(5), joins(5, "j")),
        VIOLATED,
        2,
        ("c.1.1",),
        (("c.1.0", "c.1.1"),),
    ),
    (
        "unfenced at registration",
        NEW_EPOCH,
        on("c", joins(5, fenced=False)),
        VIOLATED,
        1,
        ("c.1.0",),
        (("c.1.0",),),
    ),
    ("no broker registers", NEW_EPOCH, on("c", elected(1)), VACUOUS, 0),
    (
        "session timeout while the controller was active",
        SESSION_TIMEOUT,
        [*on("c", elected(1)), *microseconds(250), *on("c", fences(1))],
        OK,
        1,
    ),
    (
        "silence before the controller was elected",
        SESSION_TIMEOUT,
        [
            *on("c", elected(1)),
            *microseconds(250),
            *on("c", elected(2)),
            *microseconds(200),
            *on("c", fences(1)),
        ],
        VIOLATED,
        1,
        ("c.1.2",),
        (("c.1.1", "c.1.2"),),
    ),
    ("no silence", SESSION_TIMEOUT, on("c", elected(1), fences(0)), VACUOUS, 0),
    (
        "another process was elected",
        SESSION_TIMEOUT,
        [("d", elected(1)), ("c", 2, elected(2)), *on("c", fences(1000))],
        VACUOUS,
        0,
    ),
    (
        "each request has a response",
        ONE_REQUEST,
        on("b", ASKED, REFUSED, ASKED, received(0, 10), ASKED),
        OK,
        3,
    ),
    (
        "two brokers and two incarnations",
        ONE_REQUEST,
        [*on("b", ASKED), *on("d", ASKED), ("b", 2, ASKED)],
        OK,
        3,
    ),
    (
        "a second request while one is in flight",
        ONE_REQUEST,
        on("b", ASKED, received(0, 10), ASKED, ASKED, ASKED),
        VIOLATED,
        4,
        ("b.1.3", "b.1.4"),
        (("b.1.2", "b.1.3"), ("b.1.3", "b.1.4")),
    ),
    ("no requests", ONE_REQUEST, on("b", received(0, 10)), VACUOUS, 0),
]


def add_broker_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let brokers register, be fenced and request blocks, mostly one request at a time."""
    broker_epoch = 1_000_000
    for incarnation in range(random.randrange(1, 5)):
        broker_epoch += 0 if slip() else 1
        history.emit(
            "controller", elected(0), incarnation=random.choice((1, 2))
        )  # before any event of the quorum
        history.emit(
            "controller",
            joins(broker_epoch, f"life-{incarnation}", broker_id=77, fenced=not slip()),
        )
        history.emit(
            "controller",
            fences(random.choice((0, 1))),
            after_ns=1000 if slip() else 300_000,
            incarnation=random.choice((1, 2)),
        )
        for _ in range(random.randrange(3)):
            history.emit("broker-77", ASKED)
            if not slip():
                history.emit(
                    "broker-77",
                    random.choice(
                        (REFUSED, received(broker_epoch * 1000, broker_epoch * 1000 + 1))
                    ),
                )
