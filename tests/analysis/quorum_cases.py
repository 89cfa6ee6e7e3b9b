"""Histories of a controller quorum, clean and violating, with the expected results: rows for the
table in `cases.py`.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.verdict import Outcome
from tests.analysis.event_factories import (
    allocated,
    allocated_by_quorum,
    committed,
    elected,
    flushed,
    holds,
    loaded,
    said,
    stored,
    truncated_to,
    voted,
    written,
    wrote_snapshot,
)

ONE_LEADER = "one-leader-per-epoch"
ONE_VOTE = "one-vote-per-epoch"
MATCHING = "metadata-log-matching"
COMPLETE = "leader-completeness"
GROWS = "high-watermark-monotonic"
FLUSHED = "high-watermark-flushed"
UNCUT = "no-truncation-below-high-watermark"
SNAPSHOT = "snapshot-equals-log"
STORED = "vote-stored-before-sent"
COMMITTED_ONLY = "metadata-snapshot-committed-only"
GIVEN = "producer-id-block-allocated-after-commit"

LoggedEvent = tuple[str, Event] | tuple[str, int, Event]
Row = (
    tuple[str, str, list[LoggedEvent], Outcome, int]
    | tuple[str, str, list[LoggedEvent], Outcome, int, tuple[str, ...], tuple[tuple[str, ...], ...]]
)
OK, VIOLATED, VACUOUS = Outcome.OK, Outcome.VIOLATED, Outcome.VACUOUS


def on(node: str, *events: Event) -> list[LoggedEvent]:
    return [(node, event) for event in events]


def durable(end_offset: int, *nodes: str) -> list[LoggedEvent]:
    return [(node, flushed(end_offset)) for node in nodes]


QUORUM_ROWS: list[Row] = [
    # --- votes on disk
    (
        "a vote is stored, granted, and granted again after a restart",
        STORED,
        [*on("a", stored(2, 102), voted(2, 102)), ("a", 2, voted(2, 102))],
        OK,
        2,
    ),
    (
        "a vote stays stored when the leader is known",
        STORED,
        on("a", stored(2, 102), stored(2, -1), voted(2, 102)),
        OK,
        1,
    ),
    (
        "a vote is granted and then stored",
        STORED,
        on("a", voted(2, 102), stored(2, 102)),
        VIOLATED,
        1,
        ("a/2/102",),
        (("a.1.0",),),
    ),
    (
        "another vote is stored",
        STORED,
        on("a", stored(2, 101), voted(2, 102), voted(2, 102)),
        VIOLATED,
        2,
        ("a/2/102",),
        (("a.1.1",),),
    ),
    (
        "another voter has stored it",
        STORED,
        [("b", stored(2, 102)), ("a", voted(2, 102))],
        VIOLATED,
        1,
        ("a/2/102",),
        (("a.1.0",),),
    ),
    ("no votes", STORED, on("a", stored(2, 101)), VACUOUS, 0),
    # --- snapshots of committed records
    (
        "up to the high watermark",
        COMMITTED_ONLY,
        on("a", committed(1, 9), wrote_snapshot(9), loaded(20), wrote_snapshot(20)),
        OK,
        2,
    ),
    (
        "beyond the high watermark",
        COMMITTED_ONLY,
        on("a", committed(1, 9), wrote_snapshot(10)),
        VIOLATED,
        1,
        ("a.1.1",),
        (("a.1.1",),),
    ),
    (
        "known before a restart only",
        COMMITTED_ONLY,
        [*on("a", committed(1, 9)), ("a", 2, wrote_snapshot(9))],
        VIOLATED,
        1,
        ("a.2.0",),
        (("a.2.0",),),
    ),
    ("no snapshots", COMMITTED_ONLY, on("a", committed(1, 9)), VACUOUS, 0),
    # --- allocated blocks
    (
        "blocks below the high watermark",
        GIVEN,
        on(
            "a",
            committed(1, 1001),
            allocated_by_quorum(0, 1000),
            committed(1, 2001),
            allocated_by_quorum(1000, 2000),
        ),
        OK,
        2,
    ),
    (
        "a block at the high watermark",
        GIVEN,
        on("a", committed(1, 1000), allocated_by_quorum(0, 1000)),
        VIOLATED,
        1,
        ("a.1.1",),
        (("a.1.1",),),
    ),
    (
        "committed right after the response",
        GIVEN,
        on("a", allocated_by_quorum(0, 1000), committed(1, 1001)),
        VIOLATED,
        1,
        ("a.1.0",),
        (("a.1.0",),),
    ),
    (
        "known to another, and in an earlier incarnation",
        GIVEN,
        [
            *on("b", committed(1, 2000)),
            *on("a", committed(1, 2000)),
            ("a", 2, allocated_by_quorum(0, 1000)),
        ],
        VIOLATED,
        1,
        ("a.2.0",),
        (("a.2.0",),),
    ),
    ("no blocks", GIVEN, on("a", committed(1, 9)), VACUOUS, 0),
    # --- one leader per epoch
    (
        "epochs won in turn",
        ONE_LEADER,
        [("a", elected(1)), ("b", elected(2)), ("a", elected(4))],
        OK,
        3,
    ),
    (
        "an epoch won by two",
        ONE_LEADER,
        [("a", elected(1)), ("b", elected(1))],
        VIOLATED,
        2,
        ("1",),
        (("a.1.0", "b.1.0"),),
    ),
    (
        "an epoch won by three",
        ONE_LEADER,
        [("a", elected(3)), ("b", elected(3)), ("c", elected(3))],
        VIOLATED,
        3,
        ("3",),
        (("a.1.0", "b.1.0"),),
    ),
    (
        "won again by the same one after a restart",
        ONE_LEADER,
        [("a", elected(3)), ("a", 2, elected(3))],
        OK,
        2,
    ),
    ("no elections", ONE_LEADER, on("a", allocated(0, 1)), VACUOUS, 0),
    # --- one vote per epoch
    ("a vote in each epoch", ONE_VOTE, on("a", voted(1, 101), voted(2, 102), voted(3, 101)), OK, 3),
    ("a vote granted again", ONE_VOTE, [("a", voted(2, 102)), ("a", 2, voted(2, 102))], OK, 2),
    (
        "two votes across a restart",
        ONE_VOTE,
        [("a", voted(2, 102)), ("a", 2, voted(2, 103))],
        VIOLATED,
        2,
        ("a/2",),
        (("a.1.0", "a.2.0"),),
    ),
    ("two voters, two candidates", ONE_VOTE, [("a", voted(2, 101)), ("b", voted(2, 102))], OK, 2),
    ("no votes", ONE_VOTE, [], VACUOUS, 0),
    # --- log matching
    (
        "the same everywhere",
        MATCHING,
        [(node, written(1, offset, crc=offset)) for offset in range(3) for node in "abc"],
        OK,
        9,
    ),
    (
        "written again after it was lost",
        MATCHING,
        [("a", written(1, 5, crc=7)), ("a", 2, written(1, 5, crc=7))],
        OK,
        2,
    ),
    (
        "another epoch at the same offset",
        MATCHING,
        [("a", written(1, 5, crc=7)), ("b", written(2, 5, crc=8))],
        OK,
        2,
    ),
    (
        "another content",
        MATCHING,
        [("a", written(1, 5, crc=7)), ("b", written(1, 5, crc=7)), ("a", 2, written(1, 5, crc=8))],
        VIOLATED,
        3,
        ("1/5",),
        (("a.1.0", "a.2.0"),),
    ),
    (
        "another end",
        MATCHING,
        [("a", written(1, 5)), ("b", written(1, 5, last_offset=6))],
        VIOLATED,
        2,
        ("1/5",),
        (("a.1.0", "b.1.0"),),
    ),
    (
        "another past",
        MATCHING,
        [("a", written(2, 5)), ("b", written(2, 5, previous_epoch=0))],
        VIOLATED,
        2,
        ("2/5",),
        (("a.1.0", "b.1.0"),),
    ),
    # --- leader completeness
    (
        "committed records are present",
        COMPLETE,
        [
            *on("a", elected(1), committed(1, 5), committed(1, 9)),
            *on("b", holds(2, 1, 0, 9), elected(2), committed(2, 11)),
        ],
        OK,
        1,
    ),
    (
        "too short",
        COMPLETE,
        [
            *on("a", elected(1), committed(1, 5), committed(1, 9)),
            *on("b", holds(2, 1, 0, 8), elected(2)),
        ],
        VIOLATED,
        1,
        ("b.1.1/a.1.2",),
        (("a.1.2", "b.1.1"),),
    ),
    (
        "long enough, but of another epoch",
        COMPLETE,
        [
            *on("a", committed(3, 6, last_epoch=1)),
            *on("b", holds(4, 0, 0, 5), holds(4, 2, 5, 8), elected(4)),
        ],
        VIOLATED,
        1,
        ("b.1.2/a.1.0",),
        (("a.1.0", "b.1.2"),),
    ),
    (
        "noticed after the election",
        COMPLETE,
        [*on("b", holds(4, 0, 0, 5), elected(4)), *on("a", committed(3, 6))],
        VIOLATED,
        1,
        ("b.1.1/a.1.0",),
        (("a.1.0", "b.1.1"),),
    ),
    (
        "in a snapshot",
        COMPLETE,
        [*on("a", committed(3, 6)), *on("b", holds(4, -1, 0, 6), elected(4))],
        OK,
        1,
    ),
    (
        "after a snapshot and missing",
        COMPLETE,
        [*on("a", committed(3, 7)), *on("b", holds(4, -1, 0, 6), elected(4))],
        VIOLATED,
        1,
        ("b.1.1/a.1.0",),
        (),
    ),
    (
        "followers only repeat the leader",
        COMPLETE,
        [*on("a", committed(1, 9, is_leader=False)), *on("b", holds(2, 1, 0, 5), elected(2))],
        VACUOUS,
        0,
    ),
    (
        "nothing is committed below 0",
        COMPLETE,
        [*on("a", committed(1, 0)), *on("b", elected(2))],
        VACUOUS,
        0,
    ),
    (
        "a commit of a later epoch does not count",
        COMPLETE,
        [*on("a", committed(3, 9)), *on("b", elected(2))],
        VACUOUS,
        0,
    ),
    # --- high watermarks
    (
        "always higher",
        GROWS,
        [
            *on("a", committed(1, 1), committed(1, 5)),
            *on("b", committed(1, 1)),
            ("a", 2, committed(1, 3)),
        ],
        OK,
        4,
    ),
    (
        "back",
        GROWS,
        on("a", committed(1, 5), committed(2, 4), committed(2, 5)),
        VIOLATED,
        3,
        ("a.1.1",),
        (("a.1.0", "a.1.1"),),
    ),
    (
        "the same again",
        GROWS,
        on("a", committed(1, 5), committed(2, 5)),
        VIOLATED,
        2,
        ("a.1.1",),
        (("a.1.0", "a.1.1"),),
    ),
    ("durable on two of three", FLUSHED, [*durable(5, "a", "b"), *on("a", committed(1, 5))], OK, 1),
    (
        "durable on one of three",
        FLUSHED,
        [*durable(4, "b", "c"), *durable(5, "a"), *on("a", committed(1, 5))],
        VIOLATED,
        1,
        ("a.1.1",),
        (("a.1.1",),),
    ),
    (
        "durable too late",
        FLUSHED,
        [*durable(5, "a"), *on("a", committed(1, 5)), *durable(5, "b")],
        VIOLATED,
        1,
        ("a.1.1",),
        (("a.1.1",),),
    ),
    (
        "observers do not count",
        FLUSHED,
        [*durable(5, "a"), ("x", flushed(5, is_voter=False)), ("a", committed(1, 5))],
        VIOLATED,
        1,
        ("a.1.1",),
        (),
    ),
    (
        "a replica that was a voter counts",
        FLUSHED,
        [
            *durable(5, "a"),
            *durable(1, "b"),
            ("b", flushed(5, is_voter=False)),
            ("a", committed(1, 5)),
        ],
        OK,
        1,
    ),
    (
        "an observer's snapshot does not count",
        FLUSHED,
        [*durable(5, "a"), ("x", loaded(9)), ("a", committed(1, 5))],
        VIOLATED,
        1,
        ("a.1.1",),
        (),
    ),
    (
        "a truncated record does not count",
        FLUSHED,
        [*durable(5, "a", "b"), ("b", truncated_to(3)), ("a", committed(1, 5))],
        VIOLATED,
        1,
        ("a.1.1",),
        (),
    ),
    (
        "truncated and written again",
        FLUSHED,
        [
            *durable(5, "a", "b"),
            ("b", truncated_to(3)),
            ("b", truncated_to(4)),
            *durable(5, "b"),
            ("a", committed(1, 5)),
        ],
        OK,
        1,
    ),
    (
        "truncated twice, higher the second time",
        FLUSHED,
        [
            *durable(9, "a", "b"),
            ("b", truncated_to(3)),
            ("b", truncated_to(7)),
            ("a", committed(1, 5)),
        ],
        VIOLATED,
        1,
        ("a.1.1",),
        (),
    ),
    (
        "a snapshot counts",
        FLUSHED,
        [*durable(9, "a"), *durable(0, "b"), ("b", loaded(5)), ("a", committed(1, 5))],
        OK,
        1,
    ),
    (
        "the disk outlives the process",
        FLUSHED,
        [*durable(5, "a", "b"), ("a", 2, committed(2, 5))],
        OK,
        1,
    ),
    ("followers do not count", FLUSHED, on("b", committed(1, 5, is_leader=False)), VACUOUS, 0),
    # --- truncations
    (
        "truncated at the high watermark",
        UNCUT,
        on("a", committed(1, 5), truncated_to(5), truncated_to(7), loaded(5)),
        OK,
        3,
    ),
    (
        "truncated below it",
        UNCUT,
        on("a", committed(1, 5), truncated_to(4)),
        VIOLATED,
        1,
        ("a.1.1",),
        (("a.1.1",),),
    ),
    (
        "truncated below the high watermark before a restart",
        UNCUT,
        [("a", committed(1, 5)), ("a", 2, truncated_to(4))],
        VIOLATED,
        1,
        ("a.2.0",),
        (),
    ),
    ("an older snapshot", UNCUT, on("a", committed(1, 5), loaded(4)), VIOLATED, 1, ("a.1.1",), ()),
    (
        "an older snapshot after a restart, because of a loss",
        UNCUT,
        [("a", committed(1, 5)), ("a", 2, loaded(4))],
        OK,
        1,
    ),
    ("others know more", UNCUT, [("a", committed(1, 5)), ("b", truncated_to(1))], OK, 1),
    ("no truncation", UNCUT, on("a", committed(1, 5)), VACUOUS, 0),
    # --- snapshots
    (
        "snapshot and log agree",
        SNAPSHOT,
        on("final", said(0, 5, "x"), said(0, 9, "y"), said(5, 5, "x"), said(5, 9, "y")),
        OK,
        2,
    ),
    (
        "a snapshot differs from the log",
        SNAPSHOT,
        on("final", said(0, 5, "x"), said(5, 5, "z")),
        VIOLATED,
        1,
        ("5/1",),
        (("final.1.0", "final.1.1"),),
    ),
    (
        "another epoch is another position",
        SNAPSHOT,
        on("final", said(0, 5, "x"), said(5, 5, "z", epoch=2)),
        OK,
        1,
    ),
    (
        "two controllers disagree after a snapshot",
        SNAPSHOT,
        on(
            "final",
            said(0, 5, "x"),
            said(5, 5, "x"),
            said(5, 9, "y"),
            said(5, 9, "z", controller="b"),
        ),
        VIOLATED,
        3,
        ("9/1",),
        (("final.1.2", "final.1.3"),),
    ),
    (
        "logs only",
        SNAPSHOT,
        on("final", said(0, 5, "x"), said(0, 5, "x", controller="b")),
        VACUOUS,
        0,
    ),
]
