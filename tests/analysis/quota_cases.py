"""Histories of client quotas that take effect, or not: rows for the table in `cases.py`."""

from collections.abc import Callable
from random import Random

from kraftsim.events.event import Event
from kraftsim.metadata.events import (
    ClientQuotaChanged,
    ControllerElected,
    MetadataApplied,
    MetadataCommitted,
    QuotaInEffect,
)
from kraftsim.metadata.invariants.quotas_in_effect import NAME
from tests.analysis.history import History, Row
from tests.analysis.quorum_cases import OK, VACUOUS, VIOLATED, on

KEY = "producer_byte_rate"


def changed(value: str | None, entity: str = "client-id=q") -> Event:
    """A controller has committed a change."""
    return ClientQuotaChanged(entity=entity, key=KEY, value=value, is_removed=value is None)


def enforces(value: str | None, entity: str = "client-id=q") -> Event:
    """A broker enforces another value."""
    return QuotaInEffect(entity=entity, key=KEY, value=value)


def committed(high_watermark: int) -> Event:
    """The controller reports its high watermark."""
    return MetadataCommitted(leader_epoch=1, high_watermark=high_watermark)


def applied(next_offset: int) -> Event:
    """A broker has applied the metadata log."""
    return MetadataApplied(next_offset=next_offset)


ELECTED = ControllerElected(leader_epoch=2, epoch_start_offset=9)
CHANGE = on("c", changed("1.0"), committed(5))

QUOTA_ROWS: list[Row] = [
    ("in effect when applied", NAME, [*CHANGE, *on("b", enforces("1.0"), applied(5))], OK, 1),
    ("not in effect", NAME, [*CHANGE, *on("b", applied(5))], VIOLATED, 1,
     (f"b.1.0/client-id=q/{KEY}",), (("c.1.0", "b.1.0"),)),
    ("not applied", NAME, [*CHANGE, *on("b", applied(4))], VACUOUS, 0),
    ("another value", NAME, [*CHANGE, *on("b", enforces("2.0"), applied(5))], VIOLATED, 1,
     (f"b.1.1/client-id=q/{KEY}",)),
    ("it flips back", NAME, [*CHANGE, *on("b", enforces("1.0"), applied(5), enforces(None))],
     VIOLATED, 1, (f"b.1.2/client-id=q/{KEY}",), (("c.1.0", "b.1.2"),)),
    ("the next change is in effect first", NAME,
     [*CHANGE, *on("b", enforces("1.0"), applied(5)), *on("c", changed("2.0")),
      *on("b", enforces("2.0"), applied(9)), *on("c", committed(9)), *on("b", applied(10))], OK, 2),
    ("a removal", NAME,
     [*CHANGE, *on("b", enforces("1.0"), applied(5)), *on("c", changed(None), committed(6)),
      *on("b", enforces(None), applied(6))], OK, 2),
    ("a removal without effect", NAME,
     [*CHANGE, *on("b", enforces("1.0"), applied(5)), *on("c", changed(None), committed(6)),
      *on("b", applied(6))], VIOLATED, 2, (f"b.1.2/client-id=q/{KEY}",)),
    ("a broker that starts again", NAME,
     [*CHANGE, *on("b", enforces("1.0"), applied(5)), ("b", 2, applied(7))], VIOLATED, 2,
     (f"b.2.0/client-id=q/{KEY}",)),
    ("another controller is elected", NAME, [*CHANGE, *on("d", ELECTED), *on("b", applied(5))],
     VACUOUS, 0),
    ("of an address", NAME, [*on("c", changed("1.0", "ip=1.2.3.4"), committed(5)),
      *on("b", applied(5))], VACUOUS, 0),
    ("of another entity", NAME,
     [*CHANGE, *on("b", enforces("1.0", "user=q"), enforces("1.0"), applied(5))], OK, 1),
]  # fmt: skip


def add_quota_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Change quotas, which mostly take effect."""
    offset = 10_000_000
    for _ in range(random.randrange(5)):
        entity, offset = random.choice(("client-id=q", "user=u")), offset + 3
        value = random.choice((None, "1.0", "2.0"))
        history.emit("quota-controller", changed(value, entity))
        history.emit("quota-controller", committed(offset))
        for broker in ("q1", "q2"):
            if not slip():
                history.emit(broker, enforces(value, entity))
            history.emit(broker, applied(offset - (1 if slip() else 0)))
            if slip():
                history.emit(broker, enforces("3.0", entity))
        if slip():
            history.emit("quota-controller", ELECTED)
