"""Histories in which logs are compacted, or topics deleted: which records may be removed, and which
may not.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.verdict import Outcome
from kraftsim.metadata.events import TopicDeleted
from kraftsim.partitions.events import LogStartMoved
from kraftsim.server.events import SegmentsCleaned
from tests.analysis.coordinator_cases import read_back
from tests.analysis.event_factories import (
    acknowledged,
    appended,
    final_batch,
    final_log,
    final_record,
)
from tests.analysis.history import LoggedEvent, Row
from tests.analysis.replica_cases import (
    EQUAL,
    EVERYWHERE,
    IN_FINAL_LOG,
    MATCHING,
    ONE,
    TWO,
    in_sync,
    log_of,
    on,
    replicated,
)
from tests.analysis.transaction_events import (
    ATOMIC,
    MARKERS,
    READS,
    SENT_AND_COMMITTED,
    STATES,
    batch,
    changed,
    marker,
    read,
    sent,
    stable,
    state,
    through,
)
from tests.analysis.transaction_events import STABLE as LAST_STABLE
from tests.analysis.transaction_events import acknowledged as received
from tests.analysis.transaction_events import appended as opened

OK, VIOLATED, VACUOUS = Outcome.OK, Outcome.VIOLATED, Outcome.VACUOUS


def cleaned(until: int, *, topic: str = "t", partition: int = 0) -> Event:
    return SegmentsCleaned(
        topic=topic, partition=partition, first_offset=0, next_offset=until, segment_count=3
    )


def deleted(topic: str) -> LoggedEvent:
    return (ONE, TopicDeleted(topic=topic, topic_id="id", partition_count=1))


def started(offset: int, *, partition: int = 0) -> Event:
    return LogStartMoved(
        topic="out", partition=partition, log_start_offset=offset, reason="DeleteRecords"
    )


def states_are_clean(until: int) -> list[LoggedEvent]:
    return on(ONE, cleaned(until, topic="__transaction_state"))


CLEANED_ROWS: list[Row] = [
    (
        "intermediate states may be removed",
        STATES,
        [*states_are_clean(4), *on("final", state(0, 1), state(4, 4))],
        OK,
        2,
    ),
    (
        "none is removed where there was none",
        STATES,
        [*states_are_clean(9), *on("final", state(0, 1), state(1, 4))],
        VIOLATED,
        2,
        ("id/1",),
        (("final.1.0", "final.1.1"),),
    ),
    (
        "nor after the cleaned section",
        STATES,
        [*states_are_clean(4), *on("final", state(3, 1), state(5, 4))],
        VIOLATED,
        2,
        ("id/5",),
        (("final.1.0", "final.1.1"),),
    ),
    (
        "nor in a log that was not cleaned",
        STATES,
        [
            *on(ONE, cleaned(9, topic="__transaction_state", partition=1), cleaned(9)),
            *on("final", state(0, 1), state(4, 4)),
        ],
        VIOLATED,
        2,
        ("id/4",),
        (("final.1.0", "final.1.1"),),
    ),
    (
        "removed decisions are known from events",
        MARKERS,
        [
            *on(ONE, changed(1, 1, partitions="out-0"), changed(2)),
            *states_are_clean(4),
            *on("final", state(4, 4), batch(0), marker(1)),
        ],
        OK,
        2,
    ),
    (
        "or loaded by the next coordinator",
        MARKERS,
        [
            *on(ONE, changed(2)),
            *on(TWO, read_back(1, 1, partitions="out-0")),
            *states_are_clean(4),
            *on("final", state(4, 4), batch(0), marker(1)),
        ],
        OK,
        2,
    ),
    (
        "not those loaded from a complete log",
        MARKERS,
        [
            *on(ONE, changed(2)),
            *on(TWO, read_back(4, 1, partitions="out-0")),
            *states_are_clean(4),
            *on("final", state(5, 4), batch(0), marker(1)),
        ],
        VIOLATED,
        2,
        ("out-0/0",),
        (("final.1.1",),),
    ),
    (
        "not those of another epoch",
        MARKERS,
        [
            *on(ONE, changed(1, 1, partitions="out-0"), changed(2)),
            *states_are_clean(4),
            *on("final", state(4, 4), batch(0), marker(1, epoch=1)),
        ],
        VIOLATED,
        2,
        ("out-0/1",),
        (("final.1.2",),),
    ),
    (
        "nor the other decision",
        MARKERS,
        [
            *on(ONE, changed(1, 1, partitions="out-0"), changed(2)),
            *states_are_clean(4),
            *on("final", state(4, 4), batch(0), marker(1, is_commit=False)),
        ],
        VIOLATED,
        2,
        ("out-0/1",),
        (("final.1.2",),),
    ),
    (
        "an event about a complete log must match a record in it",
        MARKERS,
        [
            *on(ONE, changed(4, 1, partitions="out-0"), changed(5)),
            *states_are_clean(4),
            *on("final", state(6, 4), batch(0), marker(1)),
        ],
        VIOLATED,
        2,
        ("out-0/0", "out-0/1"),
        (("final.1.1",), ("final.1.2",)),
    ),
    (
        "a later record of its key replaces it",
        IN_FINAL_LOG,
        [
            *on(ONE, cleaned(5)),
            ("x", acknowledged(0, "k")),
            *on("final", final_log(9, 1), final_record(7, "k")),
        ],
        OK,
        1,
    ),
    (
        "an earlier one does not",
        IN_FINAL_LOG,
        [
            *on(ONE, cleaned(5)),
            ("x", acknowledged(4, "k")),
            *on("final", final_log(9, 1), final_record(3, "k")),
        ],
        VIOLATED,
        1,
        ("t/0/k/4",),
        (("x.1.0",),),
    ),
    (
        "nor one of another key",
        IN_FINAL_LOG,
        [
            *on(ONE, cleaned(5)),
            ("x", acknowledged(4, "k")),
            *on("final", final_log(9, 1), final_record(7, "l")),
        ],
        VIOLATED,
        1,
        ("t/0/k/4",),
        (("x.1.0",),),
    ),
    (
        "nothing is removed where no log was cleaned",
        IN_FINAL_LOG,
        [
            *on(ONE, cleaned(5), cleaned(9, partition=1)),
            ("x", acknowledged(5, "k")),
            *on("final", final_log(9, 1), final_record(7, "k")),
        ],
        VIOLATED,
        1,
        ("t/0/k/5",),
        (("x.1.0",),),
    ),
    (
        "each replica has it or a later one",
        EVERYWHERE,
        [
            *on(ONE, cleaned(5)),
            ("x", acknowledged(0, "k")),
            *in_sync("b", "c", "d"),
            *on(
                "final",
                log_of("b", 9),
                final_record(7, "k"),
                log_of("c", 9),
                final_record(0, "k", broker="c"),
                log_of("d", 9),
            ),
        ],
        VIOLATED,
        3,
        ("d/t/0/k/0",),
        (("x.1.0",),),
    ),
    (
        "each replica is cleaned separately",
        EQUAL,
        [
            *on(ONE, cleaned(5)),
            *in_sync("b", "c"),
            *on(
                "final",
                log_of("b", 10),
                final_batch(0, 4),
                final_batch(5, 9),
                log_of("c", 10),
                final_batch(5, 9, broker="c"),
            ),
        ],
        OK,
        2,
    ),
    (
        "after the cleaned section they are equal",
        EQUAL,
        [
            *on(ONE, cleaned(5)),
            *in_sync("b", "c"),
            *on("final", log_of("b", 10), final_batch(5, 9), log_of("c", 10)),
        ],
        VIOLATED,
        1,
        ("t/0/b/c/5",),
        (("final.1.1",),),
    ),
    (
        "replicated from a cleaned log",
        MATCHING,
        [
            *on(ONE, appended(0, 4), appended(5, 9), cleaned(5)),
            *on(TWO, replicated(0, 4, crc=9), replicated(5, 9)),
        ],
        OK,
        3,
    ),
    (
        "replicated before it was cleaned",
        MATCHING,
        [*on(ONE, appended(0, 4)), *on(TWO, replicated(0, 4, crc=9)), *on(ONE, cleaned(5))],
        VIOLATED,
        2,
        ("t/0/0/0",),
        (("broker-1.1.0", "broker-2.1.0"),),
    ),
    # --- deleted topics
    (
        "a topic of the same name has other records",
        IN_FINAL_LOG,
        [
            ("x", acknowledged(0, "k")),
            deleted("t"),
            *on("final", final_log(1, 1), final_record(0, "other")),
        ],
        OK,
        1,
    ),
    (
        "another topic was deleted",
        IN_FINAL_LOG,
        [
            ("x", acknowledged(0, "k")),
            deleted("other"),
            *on("final", final_log(1, 1), final_record(0, "other")),
        ],
        VIOLATED,
        1,
        ("t/0/k/0",),
        (("x.1.0",),),
    ),
    (
        "a deleted topic has no log",
        IN_FINAL_LOG,
        [("x", acknowledged(0, "k")), deleted("t")],
        OK,
        1,
    ),
    (
        "nor has one of its replicas",
        EVERYWHERE,
        [*in_sync("b"), ("x", acknowledged(0, "k")), deleted("t")],
        VACUOUS,
        0,
    ),
    (
        "a transaction in a deleted topic cannot be read",
        ATOMIC,
        [*SENT_AND_COMMITTED, deleted("out"), *on("a", read("x", 0), through())],
        VACUOUS,
        0,
    ),
    (
        "what is read may be of the next topic",
        READS,
        [
            *on("c", sent("x", "c/1"), received("x", 0)),
            deleted("out"),
            *on("c", read("x", 0)),
        ],
        VACUOUS,
        0,
    ),
    (
        "what follows the deletion may be said of the next topic",
        LAST_STABLE,
        [*on(ONE, opened(5, 6)), deleted("out"), *on(ONE, stable(7))],
        VACUOUS,
        0,
    ),
    (
        "what precedes the deletion is said of the deleted one",
        LAST_STABLE,
        [*on(ONE, opened(5, 6), stable(7)), deleted("out")],
        VIOLATED,
        1,
        ("out/0/50/5",),
        (("broker-1.1.0", "broker-1.1.1"),),
    ),
    # --- records below a log start offset
    (
        "a committed record below the log start offset cannot be read",
        ATOMIC,
        [*SENT_AND_COMMITTED, *on(ONE, started(1)), *on("a", read("y", 1), through())],
        OK,
        1,
    ),
    (
        "one above it must be read",
        ATOMIC,
        [*SENT_AND_COMMITTED, *on(ONE, started(1)), *on("a", through())],
        VIOLATED,
        1,
        ("c/1",),
        (("c.1.5",),),
    ),
    (
        "another partition starts later",
        ATOMIC,
        [*SENT_AND_COMMITTED, *on(ONE, started(2, partition=1)), *on("a", through())],
        VIOLATED,
        1,
        ("c/1",),
        (("c.1.5",),),
    ),
    (
        "a log that starts within an open transaction is stable up to there",
        LAST_STABLE,
        on(ONE, opened(5, 8), started(7), stable(7)),
        OK,
        1,
    ),
    (
        "and not beyond",
        LAST_STABLE,
        on(ONE, opened(5, 8), started(7), stable(8)),
        VIOLATED,
        1,
        ("out/0/50/5",),
        (("broker-1.1.0", "broker-1.1.2"),),
    ),
    (
        "nor where another replica's log starts",
        LAST_STABLE,
        [*on(TWO, started(9)), *on(ONE, opened(5, 8), stable(8))],
        VIOLATED,
        1,
        ("out/0/50/5",),
        (("broker-1.1.0", "broker-1.1.1"),),
    ),
]
