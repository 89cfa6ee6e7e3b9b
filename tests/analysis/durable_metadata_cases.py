"""Histories of metadata replicas that stop and restart, clean and violating: rows for the table in
`cases.py`.
"""

from kraftsim.events.runs import FaultInjected
from kraftsim.migration.events import MetadataCopyForgotten
from kraftsim.raft.events import RaftRoleChanged
from tests.analysis.event_factories import flushed, left, loaded, stored, truncated_to
from tests.analysis.history import Row
from tests.analysis.quorum_cases import OK, VACUOUS, VIOLATED, on

STAYS = "flushed-metadata-retained"
TAKEN_UP = "quorum-state-restored"


def damaged(target: str, fault: str = "bit-rot") -> FaultInjected:
    """A fault is injected into a host."""
    return FaultInjected(fault=fault, target=target, trigger="")


def started(leader_epoch: int, leader_id: int = -1, voted_id: int = -1) -> RaftRoleChanged:
    """A replica has only this state."""
    return RaftRoleChanged(
        role="Unattached",
        leader_epoch=leader_epoch,
        leader_id=leader_id,
        voted_id=voted_id,
        is_voter=True,
    )


DURABLE_METADATA_ROWS: list[Row] = [
    (
        "back with all of it",
        STAYS,
        [
            *on("a", flushed(3), flushed(5)),
            ("a", 2, flushed(5)),
            ("a", 2, flushed(6)),
            ("a", 3, flushed(7)),
        ],
        OK,
        2,
    ),
    (
        "back with less",
        STAYS,
        [*on("a", flushed(3), flushed(5)), ("a", 2, flushed(4))],
        VIOLATED,
        1,
        ("a.2.0",),
        (("a.1.1", "a.2.0"),),
    ),
    (
        "an observer is back with less",
        STAYS,
        [*on("a", flushed(5, is_voter=False)), ("a", 2, flushed(4))],
        VIOLATED,
        1,
        ("a.2.0",),
        (),
    ),
    (
        "truncated, and back",
        STAYS,
        [*on("a", flushed(9), truncated_to(4), truncated_to(6)), ("a", 2, flushed(4))],
        OK,
        1,
    ),
    (
        "truncated, written again, and back with less",
        STAYS,
        [*on("a", flushed(9), truncated_to(4), flushed(8)), ("a", 2, flushed(4))],
        VIOLATED,
        1,
        ("a.2.0",),
        (),
    ),
    (
        "less than what a truncation left",
        STAYS,
        [*on("a", flushed(9), truncated_to(4)), ("a", 2, flushed(3))],
        VIOLATED,
        1,
        ("a.2.0",),
        (),
    ),
    (
        "back without the snapshot",
        STAYS,
        [*on("a", flushed(3), loaded(9)), ("a", 2, flushed(3))],
        VIOLATED,
        1,
        ("a.2.0",),
        (),
    ),
    (
        "a truncation before anything is known",
        STAYS,
        [*on("a", truncated_to(4), flushed(3)), ("a", 2, flushed(3))],
        OK,
        1,
    ),
    (
        "it discarded its log",
        STAYS,
        [
            *on("a", flushed(9)),
            ("a", 2, MetadataCopyForgotten()),
            ("a", 2, flushed(0)),
            ("a", 3, flushed(0)),
        ],
        OK,
        2,
    ),
    (
        "another has less",
        STAYS,
        [*on("a", flushed(9)), ("b", 2, flushed(3)), ("b", 3, flushed(3))],
        OK,
        1,
    ),
    (
        "its disk is corrupt",
        STAYS,
        [
            *on("a", flushed(9)),
            *on("harness", damaged("a")),
            ("a", 2, flushed(3)),
            ("a", 3, flushed(2)),
        ],
        VACUOUS,
        0,
    ),
    (
        "the disk of another is corrupt",
        STAYS,
        [*on("a", flushed(9)), *on("harness", damaged("b")), ("a", 2, flushed(3))],
        VIOLATED,
        1,
        ("a.2.0",),
        (),
    ),
    (
        "it was slow",
        STAYS,
        [*on("a", flushed(9)), *on("harness", damaged("a", "slow-disk")), ("a", 2, flushed(3))],
        VIOLATED,
        1,
        ("a.2.0",),
        (),
    ),
    (
        "rotted later",
        STAYS,
        [*on("a", flushed(9)), ("a", 2, flushed(3)), *on("harness", damaged("a"))],
        VIOLATED,
        1,
        ("a.2.0",),
        (),
    ),
    ("all of it on the disk", STAYS, [*on("a", flushed(9)), *on("final", left(12))], OK, 1),
    (
        "a hole on the disk",
        STAYS,
        [*on("a", flushed(9)), *on("final", left(7))],
        VIOLATED,
        1,
        ("final.1.0",),
        (("a.1.0", "final.1.0"),),
    ),
    (
        "as much on the disk as a truncation left",
        STAYS,
        [*on("a", flushed(9), truncated_to(7)), *on("final", left(7))],
        OK,
        1,
    ),
    (
        "the disk of a node without events",
        STAYS,
        [*on("b", flushed(9)), *on("final", left(7))],
        VACUOUS,
        0,
    ),
    (
        "a corrupt disk",
        STAYS,
        [*on("a", flushed(9)), *on("harness", damaged("a")), *on("final", left(7))],
        VACUOUS,
        0,
    ),
    # --- epoch, leader and vote
    (
        "the same vote",
        TAKEN_UP,
        [
            *on("a", started(0), stored(2, 102)),
            ("a", 2, started(2, voted_id=102)),
            ("a", 3, started(2, -1, 102)),
        ],
        OK,
        2,
    ),
    (
        "the vote is lost",
        TAKEN_UP,
        [*on("a", stored(2, 102)), ("a", 2, started(2))],
        VIOLATED,
        1,
        ("a.2.0",),
        (("a.1.0", "a.2.0"),),
    ),
    (
        "another vote",
        TAKEN_UP,
        [*on("a", stored(2, 102)), ("a", 2, started(2, voted_id=103))],
        VIOLATED,
        1,
        ("a.2.0",),
        (),
    ),
    (
        "the vote is cleared because a leader is known",
        TAKEN_UP,
        [*on("a", stored(2, 102), stored(2, -1, 102)), ("a", 2, started(2, 102))],
        OK,
        1,
    ),
    (
        "a leader that was not in the events",
        TAKEN_UP,
        [*on("a", stored(2, 102)), ("a", 2, started(2, 103))],
        OK,
        1,
    ),
    (
        "a vote that was not in the events",
        TAKEN_UP,
        [*on("a", stored(2, -1)), ("a", 2, started(2, voted_id=103))],
        OK,
        1,
    ),
    (
        "the leader is lost",
        TAKEN_UP,
        [*on("a", stored(2, 102, 102)), ("a", 2, started(2, -1, 102))],
        VIOLATED,
        1,
        ("a.2.0",),
        (),
    ),
    (
        "another leader",
        TAKEN_UP,
        [*on("a", stored(2, -1, 102)), ("a", 2, started(2, 103))],
        VIOLATED,
        1,
        ("a.2.0",),
        (),
    ),
    (
        "a former leader keeps it",
        TAKEN_UP,
        [
            *on("a", stored(2, -1, 101)),
            ("a", 2, started(2, 101)),
            ("a", 2, stored(3, -1)),
            ("a", 3, started(3)),
        ],
        OK,
        2,
    ),
    (
        "one epoch more, from its log",
        TAKEN_UP,
        [*on("a", stored(2, 102, 102)), ("a", 2, started(3))],
        OK,
        1,
    ),
    (
        "one epoch less",
        TAKEN_UP,
        [*on("a", stored(2, 102, 102)), ("a", 2, started(1, 102, 102))],
        VIOLATED,
        1,
        ("a.2.0",),
        (),
    ),
    (
        "only the state at startup counts",
        TAKEN_UP,
        [*on("a", stored(2, 102)), ("a", 2, started(2, voted_id=102)), ("a", 2, started(2))],
        OK,
        1,
    ),
    (
        "only the latest state counts",
        TAKEN_UP,
        [*on("a", stored(3, 102), stored(2, 102)), ("a", 2, started(2, voted_id=102))],
        OK,
        1,
    ),
    ("another's state", TAKEN_UP, [*on("b", stored(2, 102)), ("a", 2, started(0))], VACUOUS, 0),
    (
        "its log was discarded",
        TAKEN_UP,
        [*on("a", stored(2, 102)), ("a", 2, MetadataCopyForgotten()), ("a", 2, started(0))],
        VACUOUS,
        0,
    ),
    (
        "its log was discarded before that",
        TAKEN_UP,
        [*on("a", MetadataCopyForgotten(), stored(2, 102)), ("a", 2, started(0))],
        VIOLATED,
        1,
        ("a.2.0",),
        (("a.1.1", "a.2.0"),),
    ),
    (
        "its disk was replaced",
        TAKEN_UP,
        [*on("a", stored(2, 102)), *on("harness", damaged("a", "lost-disk")), ("a", 2, started(0))],
        VACUOUS,
        0,
    ),
    (
        "its disk was only full",
        TAKEN_UP,
        [*on("a", stored(2, 102)), *on("harness", damaged("a", "disk-full")), ("a", 2, started(0))],
        VIOLATED,
        1,
        ("a.2.0",),
        (),
    ),
]
