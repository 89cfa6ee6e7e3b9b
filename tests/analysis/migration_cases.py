"""Histories of migrations from ZooKeeper, clean and violating: rows for the table in `cases.py`."""

from kraftsim.events.migration import ZookeeperCompared
from tests.analysis.happenings import said
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
