"""Histories of brokers that come, are put out and ask for blocks of producer ids, clean and violating: rows for the table in `cases.py`."""

from collections.abc import Callable
from random import Random

from kraftsim.events.event import Event
from kraftsim.events.metadata import BrokerFenced, BrokerRegistered
from kraftsim.events.nodes import NodeReady
from kraftsim.events.producer_ids import ProducerIdBlockRefused, ProducerIdBlockRequested
from tests.analysis.happenings import elected, received
from tests.analysis.history import History
from tests.analysis.quorum_cases import OK, VACUOUS, VIOLATED, Row, on

ANEW = "incarnations-begin-anew"
HEARD = "new-controllers-hear-brokers-out"
ONE_REQUEST = "one-block-request-at-a-time"
ASKED = ProducerIdBlockRequested(broker_epoch=5)
REFUSED = ProducerIdBlockRefused(error_code=7, reason="nobody answered")


def come(broker_epoch: int, incarnation_id: str = "i", *, broker_id: int = 1, fenced: bool = True) -> BrokerRegistered:
    """A registration."""
    return BrokerRegistered(broker_id=broker_id, broker_epoch=broker_epoch, incarnation_id=incarnation_id, fenced=fenced)


def put_out(session_timeout_ms: int) -> BrokerFenced:
    """A broker is fenced, for its silence or (0) for something else."""
    return BrokerFenced(broker_id=1, broker_epoch=5, reason="r", session_timeout_ms=session_timeout_ms)


def microseconds(count: int) -> list[tuple[str, Event]]:
    """Let time pass in a history."""
    return [("somebody", NodeReady())] * count


BROKER_ROWS: list[Row] = [
    ("two lives, two epochs", ANEW, on("c", come(5), come(9, "j")), OK, 2),
    ("one epoch at two brokers", ANEW, on("c", come(5), come(5, "j", broker_id=2)), OK, 2),
    ("the same life registers again in service", ANEW, on("c", come(5), come(5, fenced=False)), OK, 2),
    ("two lives of one epoch", ANEW, on("c", come(5), come(5, "j")), VIOLATED, 2, ("c.1.1",), (("c.1.0", "c.1.1"),)),
    ("in service from the first moment", ANEW, on("c", come(5, fenced=False)), VIOLATED, 1, ("c.1.0",), (("c.1.0",),)),
    ("nobody comes", ANEW, on("c", elected(1)), VACUOUS, 0),
    ("silence that was heard", HEARD, [*on("c", elected(1)), *microseconds(250), *on("c", put_out(1))], OK, 1),
    (
        "silence before anybody could speak",
        HEARD,
        [*on("c", elected(1)), *microseconds(250), *on("c", elected(2)), *microseconds(200), *on("c", put_out(1))],
        VIOLATED,
        1,
        ("c.1.2",),
        (("c.1.1", "c.1.2"),),
    ),
    ("no silence", HEARD, on("c", elected(1), put_out(0)), VACUOUS, 0),
    ("another process was elected", HEARD, [("d", elected(1)), ("c", 2, elected(2)), *on("c", put_out(1000))], VACUOUS, 0),
    ("each request has an end", ONE_REQUEST, on("b", ASKED, REFUSED, ASKED, received(0, 10), ASKED), OK, 3),
    ("two brokers and two lives", ONE_REQUEST, [*on("b", ASKED), *on("d", ASKED), ("b", 2, ASKED)], OK, 3),
    (
        "asked while it waits",
        ONE_REQUEST,
        on("b", ASKED, received(0, 10), ASKED, ASKED, ASKED),
        VIOLATED,
        4,
        ("b.1.3", "b.1.4"),
        (("b.1.2", "b.1.3"), ("b.1.3", "b.1.4")),
    ),
    ("nobody asks", ONE_REQUEST, on("b", received(0, 10)), VACUOUS, 0),
]


def note_brokers(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let brokers come and go, and ask for blocks: mostly once at a time."""
    broker_epoch = 1_000_000
    for life in range(random.randrange(1, 5)):
        broker_epoch += 0 if slip() else 1
        history.note("controller", elected(0), incarnation=random.choice((1, 2)))  # before whatever the quorum does
        history.note("controller", come(broker_epoch, f"life-{life}", broker_id=77, fenced=not slip()))
        history.note("controller", put_out(random.choice((0, 1))), after_ns=1000 if slip() else 300_000, incarnation=random.choice((1, 2)))
        for _ in range(random.randrange(3)):
            history.note("broker-77", ASKED)
            if not slip():
                history.note("broker-77", random.choice((REFUSED, received(broker_epoch * 1000, broker_epoch * 1000 + 1))))
