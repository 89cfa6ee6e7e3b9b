"""Histories of migrations from ZooKeeper, clean and violating: rows for the table in `cases.py`."""

from collections.abc import Callable
from random import Random

from kraftsim.events.migration import ZookeeperCompared
from tests.analysis.happenings import committed, given_by_quorum, said
from tests.analysis.history import History
from tests.analysis.quorum_cases import OK, VACUOUS, VIOLATED, Row, on

MIRRORS = "zookeeper-mirrors-log"


def compared(offset: int, what: str = "", *, controller: str = "a") -> ZookeeperCompared:
    """A comparison at an offset."""
    return ZookeeperCompared(controller=controller, offset=offset, differences=len(what.split(",")) if what else 0, what=what)


MIGRATION_ROWS: list[Row] = [
    ("ZooKeeper says what the log says", MIRRORS, on("harness", compared(5), compared(9), compared(9, controller="b")), OK, 3),
    (
        "a topic is not in ZooKeeper",
        MIRRORS,
        on("harness", compared(5), compared(9, "partition t-0,topic t")),
        VIOLATED,
        2,
        ("a/9",),
        (("harness.1.1",),),
    ),
    ("nobody compared", MIRRORS, on("harness", said(0, 5, "x")), VACUOUS, 0),
]


def note_migration(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let a controller give blocks away, and compare what it wrote with ZooKeeper, mostly as it should be."""
    first_id = 1_000_000
    for step in range(random.randrange(1, 5)):
        last_id = first_id + 10
        if not slip():
            history.note("controller-9", committed(99, last_id + 1))
        history.note("controller-9", given_by_quorum(first_id, last_id))
        history.note("harness", compared(step, "topic t" if slip() else "", controller="controller-9"))
        first_id = last_id
