"""Histories of replicas that go down and come back, clean and violating: rows for the table in `cases.py`."""

from kraftsim.events.migration import MetadataCopyForgotten
from kraftsim.events.runs import FaultFired
from tests.analysis.happenings import cut, flushed, loaded
from tests.analysis.quorum_cases import OK, VACUOUS, VIOLATED, Row, on

STAYS = "durable-metadata-stays"


def spoilt(target: str, fault: str = "bit-rot") -> FaultFired:
    """A fault strikes a host."""
    return FaultFired(fault=fault, target=target, trigger="")


DURABLE_METADATA_ROWS: list[Row] = [
    ("back with all of it", STAYS, [*on("a", flushed(3), flushed(5)), ("a", 2, flushed(5)), ("a", 2, flushed(6)), ("a", 3, flushed(7))], OK, 2),
    ("back with less", STAYS, [*on("a", flushed(3), flushed(5)), ("a", 2, flushed(4))], VIOLATED, 1, ("a.2.0",), (("a.1.1", "a.2.0"),)),
    ("an observer is back with less", STAYS, [*on("a", flushed(5, is_voter=False)), ("a", 2, flushed(4))], VIOLATED, 1, ("a.2.0",), ()),
    ("cut, and back", STAYS, [*on("a", flushed(9), cut(4), cut(6)), ("a", 2, flushed(4))], OK, 1),
    ("cut, written anew, and back with less", STAYS, [*on("a", flushed(9), cut(4), flushed(8)), ("a", 2, flushed(4))], VIOLATED, 1, ("a.2.0",), ()),
    ("less than what was left by a cut", STAYS, [*on("a", flushed(9), cut(4)), ("a", 2, flushed(3))], VIOLATED, 1, ("a.2.0",), ()),
    ("back without the snapshot", STAYS, [*on("a", flushed(3), loaded(9)), ("a", 2, flushed(3))], VIOLATED, 1, ("a.2.0",), ()),
    ("a cut before anything is known", STAYS, [*on("a", cut(4), flushed(3)), ("a", 2, flushed(3))], OK, 1),
    ("it threw its copy away", STAYS, [*on("a", flushed(9)), ("a", 2, MetadataCopyForgotten()), ("a", 2, flushed(0)), ("a", 3, flushed(0))], OK, 2),
    ("another has less", STAYS, [*on("a", flushed(9)), ("b", 2, flushed(3)), ("b", 3, flushed(3))], OK, 1),
    ("its disk has rotted", STAYS, [*on("a", flushed(9)), *on("harness", spoilt("a")), ("a", 2, flushed(3)), ("a", 3, flushed(2))], VACUOUS, 0),
    ("another's disk has rotted", STAYS, [*on("a", flushed(9)), *on("harness", spoilt("b")), ("a", 2, flushed(3))], VIOLATED, 1, ("a.2.0",), ()),
    ("it was slow", STAYS, [*on("a", flushed(9)), *on("harness", spoilt("a", "slow-disk")), ("a", 2, flushed(3))], VIOLATED, 1, ("a.2.0",), ()),
    ("rotted later", STAYS, [*on("a", flushed(9)), ("a", 2, flushed(3)), *on("harness", spoilt("a"))], VIOLATED, 1, ("a.2.0",), ()),
]
