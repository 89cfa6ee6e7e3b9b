"""Histories of metadata logs that grow and are truncated, clean and violating: rows for the table
in `cases.py`.
"""

from collections.abc import Callable
from random import Random

from kraftsim.metadata.events import MetadataAppended
from kraftsim.raft.events import MetadataReplicated, VotersChanged
from tests.analysis.event_factories import committed, flushed, holds, loaded, truncated_to, written
from tests.analysis.history import History, Row
from tests.analysis.quorum_cases import OK, VACUOUS, VIOLATED, on

ONE_PIECE = "metadata-log-contiguous"
REPLICATED = "flushed-metadata-has-origin"
IN_ORDER = "leader-log-contiguous"
GROWS = "high-watermark-monotonic"
COUNT = "voter-set-effective-when-appended"
NO_MORE = "truncated-voters-record-reverted"


def appended_by_leader(first_offset: int, last_offset: int) -> MetadataAppended:
    """A leader appends."""
    return MetadataAppended(
        leader_epoch=1, first_offset=first_offset, last_offset=last_offset, record_kinds=""
    )


def replicated(first_offset: int, last_offset: int) -> MetadataReplicated:
    """A follower replicates records."""
    return MetadataReplicated(leader_epoch=1, first_offset=first_offset, last_offset=last_offset)


def other_voters(offset: int) -> MetadataAppended:
    """A leader of epoch 1 appends a new voter set."""
    return MetadataAppended(
        leader_epoch=1, first_offset=offset, last_offset=offset, record_kinds="Voters"
    )


def uses_voters(offset: int) -> VotersChanged:
    """A replica uses the voter set at an offset."""
    return VotersChanged(offset=offset, voters="101,102", kraft_version=1)


def add_voter_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let a leader change the voters, another controller replicate that, and both truncate it;
    mostly they use the voters of their logs.
    """
    for offset in range(900, 900 + random.randrange(1, 4)):
        for node, event in (("controller-6", other_voters), ("controller-7", replicated_one)):
            history.emit(node, event(offset))
            if not slip():
                history.emit(node, uses_voters(offset))
            history.emit(node, written(1, offset))
    for node in ("controller-6", "controller-7"):
        history.emit(node, truncated_to(offset))
        if not slip():
            history.emit(node, uses_voters(offset - 1))
        history.emit(node, written(2, offset, previous_epoch=1))


def replicated_one(offset: int) -> MetadataReplicated:
    """A follower replicates one record."""
    return replicated(offset, offset)


METADATA_LOG_ROWS: list[Row] = [
    # --- contiguous logs
    (
        "consecutive batches",
        ONE_PIECE,
        on("a", written(1, 0, last_offset=2), written(1, 3), written(2, 4)),
        OK,
        3,
    ),
    (
        "a gap",
        ONE_PIECE,
        on("a", written(1, 0, last_offset=2), written(1, 4)),
        VIOLATED,
        2,
        ("a.1.1",),
        (("a.1.0", "a.1.1"),),
    ),
    (
        "the same again",
        ONE_PIECE,
        on("a", written(1, 5), written(1, 5)),
        VIOLATED,
        2,
        ("a.1.1",),
        (("a.1.0", "a.1.1"),),
    ),
    (
        "another's log is another log",
        ONE_PIECE,
        [*on("a", written(1, 5)), *on("b", written(1, 7)), ("a", 2, written(1, 2))],
        OK,
        3,
    ),
    (
        "truncated, and written on",
        ONE_PIECE,
        on("a", truncated_to(9), written(1, 9), truncated_to(7), written(2, 7)),
        OK,
        4,
    ),
    (
        "written beyond the truncation",
        ONE_PIECE,
        on("a", written(1, 9), truncated_to(7), written(2, 8)),
        VIOLATED,
        3,
        ("a.1.2",),
        (("a.1.1", "a.1.2"),),
    ),
    (
        "a truncation that removes nothing",
        ONE_PIECE,
        on("a", written(1, 9), truncated_to(10)),
        VIOLATED,
        2,
        ("a.1.1",),
        (("a.1.0", "a.1.1"),),
    ),
    (
        "already truncated there",
        ONE_PIECE,
        on("a", truncated_to(9), truncated_to(9)),
        VIOLATED,
        2,
        ("a.1.1",),
        (("a.1.0", "a.1.1"),),
    ),
    (
        "behind a snapshot",
        ONE_PIECE,
        on("a", written(1, 9), loaded(30), written(2, 30), truncated_to(30)),
        OK,
        3,
    ),
    (
        "not where the snapshot ends",
        ONE_PIECE,
        on("a", loaded(30), written(2, 31)),
        VIOLATED,
        1,
        ("a.1.1",),
        (("a.1.0", "a.1.1"),),
    ),
    ("a snapshot alone", ONE_PIECE, on("a", loaded(30)), VACUOUS, 0),
    # --- replicated records and their events
    (
        "appended, replicated, durable",
        REPLICATED,
        on("a", flushed(3), appended_by_leader(3, 3), replicated(4, 7), flushed(8), flushed(8)),
        OK,
        5,
    ),
    (
        "replicated twice",
        REPLICATED,
        on("a", replicated(3, 5), replicated(5, 6)),
        VIOLATED,
        2,
        ("a.1.1",),
        (("a.1.1",),),
    ),
    (
        "not at the end of the log on disk",
        REPLICATED,
        on("a", flushed(3), replicated(4, 5)),
        VIOLATED,
        2,
        ("a.1.1",),
        (),
    ),
    (
        "durable without an append",
        REPLICATED,
        on("a", flushed(3), flushed(5), flushed(6)),
        VIOLATED,
        3,
        ("a.1.1", "a.1.2"),
        (),
    ),
    (
        "truncated, and replicated again",
        REPLICATED,
        on("a", replicated(3, 5), truncated_to(4), replicated(4, 4), flushed(5)),
        OK,
        3,
    ),
    (
        "replicated as if nothing had been truncated",
        REPLICATED,
        on("a", replicated(3, 5), truncated_to(4), replicated(6, 6)),
        VIOLATED,
        2,
        ("a.1.2",),
        (),
    ),
    (
        "behind a snapshot, too",
        REPLICATED,
        on("a", replicated(3, 5), loaded(9), replicated(9, 9), flushed(10)),
        OK,
        3,
    ),
    (
        "an observer needs no events",
        REPLICATED,
        on(
            "a",
            replicated(3, 5),
            flushed(9, is_voter=False),
            flushed(11, is_voter=False),
            replicated(11, 12),
        ),
        OK,
        2,
    ),
    (
        "a process restarts",
        REPLICATED,
        [*on("a", replicated(3, 5)), ("a", 2, flushed(5)), ("a", 2, replicated(5, 6))],
        OK,
        3,
    ),
    (
        "no voters",
        REPLICATED,
        on("a", flushed(9, is_voter=False), flushed(11, is_voter=False)),
        VACUOUS,
        0,
    ),
    # --- the log of an elected leader
    (
        "consecutive epochs",
        IN_ORDER,
        on("a", holds(4, 1, 0, 5), holds(4, 3, 5, 9), holds(6, 1, 0, 5), holds(6, 3, 5, 8)),
        OK,
        4,
    ),
    ("after a snapshot", IN_ORDER, on("a", holds(4, -1, 0, 7), holds(4, 3, 7, 9)), OK, 2),
    (
        "not from the start",
        IN_ORDER,
        on("a", holds(4, 1, 2, 5)),
        VIOLATED,
        1,
        ("a.1.0",),
        (("a.1.0",),),
    ),
    (
        "an epoch twice",
        IN_ORDER,
        on("a", holds(4, 1, 0, 5), holds(4, 1, 5, 6)),
        VIOLATED,
        2,
        ("a.1.1",),
        (),
    ),
    (
        "an epoch without records",
        IN_ORDER,
        on("a", holds(4, 1, 0, 0), holds(4, 2, 0, 5), holds(4, 2, 5, 5)),
        OK,
        1,
    ),
    (
        "an end before the beginning",
        IN_ORDER,
        on("a", holds(4, 1, 0, 5), holds(4, 2, 5, 3)),
        VIOLATED,
        2,
        ("a.1.1",),
        (),
    ),
    (
        "in the snapshot and in the log",
        IN_ORDER,
        on("a", holds(4, -1, 0, 7), holds(4, 1, 0, 9)),
        VIOLATED,
        2,
        ("a.1.1",),
        (),
    ),
    (
        "a gap between epochs",
        IN_ORDER,
        on("a", holds(4, 1, 0, 5), holds(4, 2, 6, 7)),
        VIOLATED,
        2,
        ("a.1.1",),
        (),
    ),
    ("no leader is elected", IN_ORDER, on("a", written(1, 0)), VACUOUS, 0),
    # --- voters in use
    (
        "leader and follower use them",
        COUNT,
        [
            *on("a", other_voters(4), uses_voters(4), written(1, 4)),
            *on("b", uses_voters(4), written(1, 4), written(1, 5)),
        ],
        OK,
        2,
    ),
    (
        "a replicated record whose voters are not used",
        COUNT,
        [
            *on("a", other_voters(4), uses_voters(4), written(1, 4)),
            *on("b", written(1, 4), uses_voters(4)),
        ],
        VIOLATED,
        2,
        ("b.1.0",),
        (("b.1.0",),),
    ),
    (
        "known to its earlier incarnation only",
        COUNT,
        [*on("a", other_voters(4), uses_voters(4)), ("b", uses_voters(4)), ("b", 2, written(1, 4))],
        VIOLATED,
        1,
        ("b.2.0",),
        (),
    ),
    (
        "another record of another epoch",
        COUNT,
        [*on("a", other_voters(4), uses_voters(4), written(1, 4)), *on("b", written(2, 4))],
        OK,
        1,
    ),
    (
        "voters that do not change",
        COUNT,
        on("a", appended_by_leader(4, 4), written(1, 4)),
        VACUOUS,
        0,
    ),
    # --- truncated voter sets
    (
        "back to those before",
        NO_MORE,
        on("a", uses_voters(4), truncated_to(4), uses_voters(-1), written(2, 4)),
        OK,
        1,
    ),
    (
        "they are still used",
        NO_MORE,
        on("a", uses_voters(4), truncated_to(4), written(2, 4)),
        VIOLATED,
        1,
        ("a.1.1",),
        (("a.1.1", "a.1.2"),),
    ),
    (
        "they are still used, and reported again",
        NO_MORE,
        on("a", uses_voters(4), truncated_to(4), uses_voters(4), written(2, 4)),
        VIOLATED,
        1,
        ("a.1.1",),
        (),
    ),
    (
        "the earlier ones were truncated too",
        NO_MORE,
        on("a", uses_voters(2), uses_voters(4), truncated_to(2), uses_voters(2), written(2, 2)),
        VIOLATED,
        1,
        ("a.1.2",),
        (),
    ),
    (
        "truncated twice",
        NO_MORE,
        on("a", uses_voters(4), truncated_to(4), truncated_to(3), uses_voters(3), written(2, 3)),
        VIOLATED,
        2,
        ("a.1.2",),
        (("a.1.2", "a.1.4"),),
    ),
    (
        "a truncation above them",
        NO_MORE,
        on("a", uses_voters(4), truncated_to(5), written(2, 5)),
        VACUOUS,
        0,
    ),
    (
        "those of another",
        NO_MORE,
        [*on("b", uses_voters(4)), *on("a", truncated_to(4), written(2, 4))],
        VACUOUS,
        0,
    ),
    (
        "those of an earlier incarnation",
        NO_MORE,
        [*on("a", uses_voters(4)), ("a", 2, truncated_to(4)), ("a", 2, written(2, 4))],
        VACUOUS,
        0,
    ),
    (
        "nothing is written any more",
        NO_MORE,
        [*on("a", uses_voters(4), truncated_to(4)), ("a", 2, written(2, 4))],
        OK,
        1,
    ),
    # --- high watermarks and snapshots
    ("beyond a snapshot", GROWS, on("a", committed(1, 5), loaded(9), committed(1, 10)), OK, 2),
    (
        "the end of a snapshot is not an advance",
        GROWS,
        on("a", loaded(9), committed(1, 9)),
        VIOLATED,
        1,
        ("a.1.1",),
        (("a.1.0", "a.1.1"),),
    ),
    ("known to another process", GROWS, [*on("a", loaded(9)), ("a", 2, committed(1, 9))], OK, 1),
]
