"""Histories of transactions, clean and violating, with the expected results: rows for the table in
`cases.py`.
"""

from typing import TypedDict

from kraftsim.clients.events import (
    CopyExpected,
    CopyRead,
    RecordAcknowledged,
    RecordRead,
    RecordSent,
    TransactionalIdTaken,
    TransactionEndAsked,
    TransactionEnded,
)
from kraftsim.events.event import Event
from kraftsim.events.runs import Settled
from kraftsim.groups.events import (
    GroupsUnloaded,
    OffsetCommitted,
    OffsetForgotten,
    OffsetLoaded,
    OffsetMaterialised,
    OffsetReturned,
    PendingOffsetAdded,
    PendingOffsetDropped,
)
from kraftsim.invariants.verdict import Outcome
from kraftsim.partitions.events import (
    BatchAppended,
    BatchReplicated,
    FinalBatch,
    FinalMarker,
    FinalOffset,
    FinalTransaction,
    LastStableOffsetMoved,
    MarkerAppended,
    PartitionTruncated,
)
from kraftsim.transactions.events import TransactionStateChanged
from tests.analysis.history import LoggedEvent, Row

OUTPUT = "each-input-processed-once"
ATOMIC = "transactions-atomic"
READS = "read-committed-isolation"
STABLE = "last-stable-offset-before-open-transactions"
HANGS = "no-hanging-transactions"
STATES = "transaction-transitions-valid"
MARKERS = "markers-match-coordinator-decisions"
FENCED = "fenced-producers-write-nothing"
FETCHED = "fetched-offsets-stable"
EQUAL = "group-offsets-equal-log"

OK, VIOLATED, UNKNOWN, VACUOUS = Outcome.OK, Outcome.VIOLATED, Outcome.UNKNOWN, Outcome.VACUOUS
ONE, TWO = "broker-1", "broker-2"
PID = 50
LABELS = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


def on(node: str, *events: Event) -> list[LoggedEvent]:
    return [(node, event) for event in events]


# Clients
# --------------------------------------------------------------------------------------------------


def expected() -> Event:
    return CopyExpected(input_topic="in", output_topic="out")


def filled(key: str, offset: int = 0) -> Event:
    return RecordAcknowledged(client_id="w", topic="in", partition=0, record_key=key, offset=offset)


def sent(key: str, transaction: str) -> Event:
    return RecordSent(
        client_id="c", topic="out", partition=0, record_key=key, transaction=transaction
    )


def acknowledged(key: str, offset: int) -> Event:
    return RecordAcknowledged(
        client_id="c", topic="out", partition=0, record_key=key, offset=offset
    )


def read(key: str, offset: int, *, is_read_committed: bool = True) -> Event:
    return RecordRead(
        client_id="a",
        topic="out",
        partition=0,
        record_key=key,
        offset=offset,
        is_read_committed=is_read_committed,
    )


def through() -> Event:
    return CopyRead(client_id="a", topic="out")


def taken(epoch: int) -> Event:
    return TransactionalIdTaken(
        client_id="c", transactional_id="id", producer_id=PID, producer_epoch=epoch
    )


def asked(transaction: str, *, is_commit: bool = True) -> Event:
    return TransactionEndAsked(
        client_id="c", transactional_id="id", transaction=transaction, is_commit=is_commit
    )


def ended(transaction: str, outcome: str, *, epoch: int = 0) -> Event:
    return TransactionEnded(
        client_id="c",
        transactional_id="id",
        transaction=transaction,
        producer_id=PID,
        producer_epoch=epoch,
        outcome=outcome,
        error_code=0,
    )


# Brokers
# --------------------------------------------------------------------------------------------------


def appended(
    first: int, last: int, *, epoch: int = 0, producer_id: int = PID, is_transactional: bool = True
) -> Event:
    return BatchAppended(
        topic="out",
        partition=0,
        leader_epoch=0,
        first_offset=first,
        last_offset=last,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=first + 1000 * epoch,
        last_sequence=last,
        record_count=1,
        size_bytes=1,
        crc=first,
        is_transactional=is_transactional,
    )


def replicated(first: int, last: int, *, epoch: int = 0) -> Event:
    return BatchReplicated(
        topic="out",
        partition=0,
        leader_epoch=0,
        first_offset=first,
        last_offset=last,
        crc=first,
        producer_id=PID,
        producer_epoch=epoch,
        base_sequence=first + 1000 * epoch,
        is_transactional=True,
    )


def marked(offset: int, *, is_commit: bool = True, epoch: int = 0, producer_id: int = PID) -> Event:
    return MarkerAppended(
        topic="out",
        partition=0,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=0,
        is_commit=is_commit,
        offset=offset,
        on_leader=True,
    )


def stable(offset: int, high_watermark: int = 99) -> Event:
    return LastStableOffsetMoved(
        topic="out", partition=0, leader_epoch=0, offset=offset, high_watermark=high_watermark
    )


def truncated_to(end_offset: int) -> Event:
    return PartitionTruncated(
        topic="out",
        partition=0,
        leader_epoch=0,
        former_end_offset=99,
        log_end_offset=end_offset,
        high_watermark=0,
    )


# Final logs
# --------------------------------------------------------------------------------------------------


def quiet() -> Event:
    return Settled(what="transactions", after_ms=1, limit_ms=2, is_settled=True)


def batch(
    first: int, *, epoch: int = 0, broker: str = ONE, is_control: bool = False, partition: int = 0
) -> Event:
    return FinalBatch(
        topic="out",
        partition=partition,
        first_offset=first,
        last_offset=first,
        producer_id=PID,
        producer_epoch=epoch,
        base_sequence=-1 if is_control else first + 1000 * epoch,
        last_sequence=-1,
        record_count=1,
        is_control=is_control,
        crc=first,
        broker=broker,
        is_transactional=True,
    )


def marker(
    offset: int,
    *,
    is_commit: bool = True,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    topic: str = "out",
    broker: str = ONE,
    producer_id: int = PID,
) -> Event:
    return FinalMarker(
        topic=topic,
        partition=0,
        offset=offset,
        producer_id=producer_id,
        producer_epoch=epoch,
        is_commit=is_commit,
        coordinator_epoch=coordinator_epoch,
        broker=broker,
    )


def state(
    offset: int,
    status: int,
    *,
    epoch: int = 0,
    partitions: str = "",
    producer_id: int = PID,
    broker: str = ONE,
    name: str = "id",
) -> Event:
    return FinalTransaction(
        partition=0,
        offset=offset,
        transactional_id=name,
        producer_id=producer_id,
        producer_epoch=epoch,
        status=status,
        partitions=partitions,
        broker=broker,
    )


def states(*statuses: int) -> list[LoggedEvent]:
    return on("final", *(state(offset, status) for offset, status in enumerate(statuses)))


def changed(
    offset: int,
    status: int = 2,
    *,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    partitions: str = "",
    name: str = "id",
) -> Event:
    return TransactionStateChanged(
        transactional_id=name,
        producer_id=PID,
        producer_epoch=epoch,
        state=LABELS[status],
        partitions=partitions,
        coordinator_epoch=coordinator_epoch,
        partition=0,
        offset=offset,
    )


# Groups
# --------------------------------------------------------------------------------------------------


class Place(TypedDict):
    """An offset of a group, and where the record of its commit lies."""

    coordinator_partition: int
    group_id: str
    topic: str
    partition: int
    offset: int
    record_offset: int


def place(offset: int, record_offset: int) -> Place:
    return Place(
        coordinator_partition=0,
        group_id="g",
        topic="in",
        partition=0,
        offset=offset,
        record_offset=record_offset,
    )


def committed(offset: int, record_offset: int) -> Event:
    return OffsetCommitted(**place(offset, record_offset), is_current=True)


def loaded(offset: int, record_offset: int, producer_id: int = -1) -> Event:
    return OffsetLoaded(**place(offset, record_offset), producer_id=producer_id)


def pending(offset: int, record_offset: int, producer_id: int = PID) -> Event:
    return PendingOffsetAdded(
        **place(offset, record_offset), producer_id=producer_id, producer_epoch=0
    )


def materialised(offset: int, record_offset: int, producer_id: int = PID) -> Event:
    return OffsetMaterialised(
        **place(offset, record_offset),
        producer_id=producer_id,
        producer_epoch=0,
        marker_offset=9,
        is_current=True,
    )


def dropped(offset: int, record_offset: int, producer_id: int = PID) -> Event:
    return PendingOffsetDropped(
        **place(offset, record_offset), producer_id=producer_id, producer_epoch=0, marker_offset=9
    )


def fetch(
    offset: int, record_offset: int, *, require_stable: bool = True, error_code: int = 0
) -> Event:
    return OffsetReturned(
        **place(offset, record_offset), require_stable=require_stable, error_code=error_code
    )


def logged(offset: int, log_offset: int, producer_id: int = -1, broker: str = ONE) -> Event:
    return FinalOffset(
        offsets_partition=0,
        log_offset=log_offset,
        group_id="g",
        topic="in",
        partition=0,
        committed_offset=offset,
        producer_id=producer_id,
        broker=broker,
    )


FORGOTTEN = OffsetForgotten(coordinator_partition=0, group_id="g", topic="in", partition=0)
OFFSETS = "__consumer_offsets"
SENT_AND_COMMITTED = on(
    "c",
    sent("x", "c/1"),
    acknowledged("x", 0),
    sent("y", "c/1"),
    acknowledged("y", 1),
    asked("c/1"),
    ended("c/1", "committed"),
)
TRANSACTION_ROWS: list[Row] = [
    # --- outputs
    (
        "each once",
        OUTPUT,
        on("c", expected(), filled("x"), filled("y"), read("x", 0), read("y", 2), through()),
        OK,
        2,
    ),
    (
        "one is missing",
        OUTPUT,
        on("c", expected(), filled("x"), through()),
        VIOLATED,
        1,
        ("out/a/x",),
        (("c.1.1", "c.1.2"),),
    ),
    (
        "one twice",
        OUTPUT,
        on("c", expected(), filled("x"), read("x", 0), read("x", 3), through()),
        VIOLATED,
        1,
        ("out/a/x",),
        (("c.1.2", "c.1.3"),),
    ),
    (
        "one record read twice is no second output",
        OUTPUT,
        on("c", expected(), filled("x"), read("x", 0), read("x", 0), through()),
        OK,
        1,
    ),
    (
        "a record read uncommitted is no output",
        OUTPUT,
        on("c", expected(), filled("x"), read("x", 0, is_read_committed=False), through()),
        VIOLATED,
        1,
        ("out/a/x",),
        (("c.1.1", "c.1.3"),),
    ),
    ("the output was not read", OUTPUT, on("c", expected(), filled("x"), read("x", 0)), UNKNOWN, 0),
    # --- atomic
    (
        "committed and readable",
        ATOMIC,
        [*SENT_AND_COMMITTED, *on("a", read("x", 0), read("y", 1), through())],
        OK,
        1,
    ),
    (
        "committed and partly readable",
        ATOMIC,
        [*SENT_AND_COMMITTED, *on("a", read("x", 0), through())],
        VIOLATED,
        1,
        ("c/1",),
        (("c.1.5",),),
    ),
    (
        "aborted and readable",
        ATOMIC,
        on(
            "c",
            sent("x", "c/1"),
            acknowledged("x", 0),
            ended("c/1", "aborted"),
            read("x", 0),
            through(),
        ),
        VIOLATED,
        1,
        ("c/1",),
        (("c.1.2",),),
    ),
    (
        "unknown and readable",
        ATOMIC,
        on(
            "c",
            sent("x", "c/1"),
            acknowledged("x", 0),
            ended("c/1", "unknown"),
            read("x", 0),
            through(),
        ),
        OK,
        1,
    ),
    (
        "unknown and partly readable",
        ATOMIC,
        on(
            "c",
            sent("x", "c/1"),
            acknowledged("x", 0),
            sent("y", "c/1"),
            acknowledged("y", 1),
            ended("c/1", "unknown"),
            read("x", 0),
            through(),
        ),
        VIOLATED,
        1,
        ("c/1",),
        (("c.1.4",),),
    ),
    (
        "sent again after an abort",
        ATOMIC,
        on(
            "c",
            sent("x", "c/1"),
            acknowledged("x", 0),
            ended("c/1", "aborted"),
            sent("x", "c/2"),
            acknowledged("x", 2),
            ended("c/2", "committed"),
            read("x", 2),
            through(),
        ),
        OK,
        2,
    ),
    ("no reader has read everything", ATOMIC, SENT_AND_COMMITTED, VACUOUS, 0),
    # --- reads
    (
        "read after EndTxn was sent",
        READS,
        on("c", sent("x", "c/1"), acknowledged("x", 0), asked("c/1"), read("x", 0)),
        OK,
        1,
    ),
    (
        "read before",
        READS,
        on("c", sent("x", "c/1"), acknowledged("x", 0), read("x", 0), asked("c/1")),
        VIOLATED,
        1,
        ("c/1/out/0/0",),
        (("c.1.2",),),
    ),
    (
        "read before it was acknowledged",
        READS,
        on("c", sent("x", "c/1"), read("x", 0), acknowledged("x", 0)),
        VIOLATED,
        1,
        ("c/1/out/0/0",),
        (("c.1.1",),),
    ),
    (
        "read, and aborted",
        READS,
        on(
            "c",
            sent("x", "c/1"),
            acknowledged("x", 0),
            asked("c/1", is_commit=False),
            ended("c/1", "aborted"),
            read("x", 0),
        ),
        VIOLATED,
        1,
        ("c/1/out/0/0",),
        (("c.1.4",),),
    ),
    (
        "read uncommitted",
        READS,
        on("c", sent("x", "c/1"), acknowledged("x", 0), read("x", 0, is_read_committed=False)),
        VACUOUS,
        0,
    ),
    (
        "no transaction",
        READS,
        on("c", sent("x", ""), acknowledged("x", 0), read("x", 0)),
        VACUOUS,
        0,
    ),
    # --- last stable offset
    (
        "waits for the marker",
        STABLE,
        on(ONE, appended(5, 6), stable(5), marked(7), stable(8)),
        OK,
        2,
    ),
    (
        "advances past an open transaction",
        STABLE,
        on(ONE, appended(5, 6), stable(7)),
        VIOLATED,
        1,
        ("out/0/50/5",),
        ((f"{ONE}.1.0", f"{ONE}.1.1"),),
    ),
    (
        "above the high watermark",
        STABLE,
        on(ONE, stable(7, 6)),
        VIOLATED,
        1,
        ("out/0/7",),
        ((f"{ONE}.1.0",),),
    ),
    (
        "another replica's transaction",
        STABLE,
        [*on(TWO, replicated(5, 6)), *on(ONE, stable(7))],
        OK,
        1,
    ),
    (
        "a replicated transaction",
        STABLE,
        on(ONE, replicated(5, 6), stable(7)),
        VIOLATED,
        1,
        ("out/0/50/5",),
        ((f"{ONE}.1.0", f"{ONE}.1.1"),),
    ),
    (
        "records outside of transactions",
        STABLE,
        on(ONE, appended(5, 6, is_transactional=False), stable(7)),
        OK,
        1,
    ),
    ("truncated records", STABLE, on(ONE, appended(5, 6), truncated_to(5), stable(6)), OK, 1),
    (
        "records overwritten after a loss",
        STABLE,
        on(ONE, appended(5, 6), appended(4, 8, is_transactional=False), stable(9)),
        OK,
        1,
    ),
    (
        "the next transaction",
        STABLE,
        on(ONE, appended(5, 6), marked(7), appended(8, 8), stable(8), stable(9)),
        VIOLATED,
        2,
        ("out/0/50/8",),
        ((f"{ONE}.1.2", f"{ONE}.1.4"),),
    ),
    # --- hanging
    (
        "all ended",
        HANGS,
        on("final", quiet(), batch(0), batch(1), marker(2), state(0, 1), state(1, 2), state(2, 4)),
        OK,
        2,
    ),
    (
        "no marker",
        HANGS,
        on("final", quiet(), batch(0), marker(1), batch(2)),
        VIOLATED,
        2,
        ("out/0/50",),
        (("final.1.3",),),
    ),
    (
        "another replica has the marker",
        HANGS,
        on("final", quiet(), batch(0), batch(0, broker=TWO), marker(1, broker=TWO)),
        OK,
        2,
    ),
    (
        "decided and not completed",
        HANGS,
        on("final", quiet(), batch(0), marker(1), state(0, 1), state(1, 2)),
        VIOLATED,
        1,
        ("id",),
        (("final.1.4",),),
    ),
    ("the run did not settle", HANGS, on("final", batch(0), state(0, 2)), VACUOUS, 0),
    # --- states
    ("two transactions", STATES, states(0, 1, 1, 2, 4, 1, 3, 5, 0), OK, 9),
    ("a record twice", STATES, states(0, 1, 2, 2, 4, 4), OK, 6),
    (
        "an end twice",
        STATES,
        [*on(ONE, changed(3), changed(4)), *states(0, 1, 2, 4, 4)],
        VIOLATED,
        5,
        ("id/4",),
        (("final.1.3", "final.1.4"),),
    ),
    (
        "completed without a decision",
        STATES,
        states(0, 1, 4),
        VIOLATED,
        3,
        ("id/2",),
        (("final.1.1", "final.1.2"),),
    ),
    ("a decision that was never committed", STATES, states(0, 1, 2, 3, 5), OK, 5),
    (
        "another decision",
        STATES,
        [*on(ONE, changed(2)), *states(0, 1, 2, 3, 5)],
        VIOLATED,
        5,
        ("id/3",),
        (("final.1.2", "final.1.3"),),
    ),
    # --- markers
    (
        "as decided",
        MARKERS,
        on("final", state(0, 1, partitions="out-0"), state(1, 2), batch(0), marker(1)),
        OK,
        2,
    ),
    (
        "not as decided",
        MARKERS,
        on("final", state(0, 1, partitions="out-0"), state(1, 2), marker(1, is_commit=False)),
        VIOLATED,
        1,
        ("out-0/1",),
        (("final.1.2",),),
    ),
    (
        "of an older coordinator",
        MARKERS,
        on("final", marker(1, coordinator_epoch=3), marker(2, coordinator_epoch=2)),
        VIOLATED,
        2,
        ("out-0/2",),
        (("final.1.1",),),
    ),
    (
        "of an older epoch",
        MARKERS,
        on("final", marker(1, epoch=3), marker(2, epoch=2)),
        VIOLATED,
        2,
        ("out-0/2",),
        (("final.1.1",),),
    ),
    (
        "of another producer",
        MARKERS,
        on("final", marker(1, coordinator_epoch=3), marker(2, coordinator_epoch=2, producer_id=51)),
        OK,
        2,
    ),
    (
        "records of a partition that was not added",
        MARKERS,
        on("final", state(0, 1, partitions="out-1,out-10"), batch(0)),
        VIOLATED,
        1,
        ("out-0/0",),
        (("final.1.1",),),
    ),
    ("a producer that no coordinator knows", MARKERS, on("final", batch(0), marker(1)), OK, 2),
    # --- fenced
    (
        "epochs increase",
        FENCED,
        [
            *on("c", taken(0)),
            *on(ONE, appended(0, 0)),
            *on("c", taken(1)),
            *on("final", batch(0), batch(1, epoch=1)),
        ],
        OK,
        2,
    ),
    (
        "an epoch goes back in a log",
        FENCED,
        [*on("c", taken(1)), *on("final", batch(0, epoch=1), batch(1))],
        VIOLATED,
        1,
        ("out-0/1",),
        (("final.1.1",),),
    ),
    (
        "written after the fence, and kept",
        FENCED,
        [*on("c", taken(1)), *on(ONE, appended(0, 0)), *on("final", batch(0))],
        VIOLATED,
        1,
        ("out-0/0",),
        (("c.1.0", f"{ONE}.1.0"),),
    ),
    (
        "written after the fence by an outdated leader",
        FENCED,
        [*on("c", taken(1)), *on(ONE, appended(0, 0))],
        OK,
        1,
    ),
    (
        "committed after the fence",
        FENCED,
        on("c", taken(1), asked("c/1"), ended("c/1", "committed")),
        VIOLATED,
        1,
        ("c/1",),
        (("c.1.1", "c.1.2"),),
    ),
    (
        "requested before the fence",
        FENCED,
        on("c", asked("c/1"), taken(1), ended("c/1", "committed")),
        OK,
        1,
    ),
    # --- offsets returned by OffsetFetch
    ("a committed offset", FETCHED, on(ONE, committed(5, 0), fetch(5, 0)), OK, 1),
    (
        "an offset that was never committed",
        FETCHED,
        on(ONE, pending(5, 0), fetch(5, 0, require_stable=False)),
        VIOLATED,
        1,
        ("g/in/0/0",),
        ((f"{ONE}.1.1",),),
    ),
    (
        "while a pending commit may replace it",
        FETCHED,
        on(ONE, committed(5, 0), pending(7, 1), fetch(5, 0)),
        VIOLATED,
        1,
        ("g/in/0/0",),
        ((f"{ONE}.1.1", f"{ONE}.1.2"),),
    ),
    (
        "an old client does not wait",
        FETCHED,
        on(ONE, committed(5, 0), pending(7, 1), fetch(5, 0, require_stable=False)),
        OK,
        1,
    ),
    ("after the marker", FETCHED, on(ONE, pending(7, 1), materialised(7, 1), fetch(7, 1)), OK, 1),
    (
        "after the abort",
        FETCHED,
        on(ONE, committed(5, 0), pending(7, 1), dropped(7, 1), fetch(5, 0)),
        OK,
        1,
    ),
    (
        "after the pending commit was removed",
        FETCHED,
        on(ONE, committed(5, 0), pending(7, 1), FORGOTTEN, fetch(5, 0)),
        OK,
        1,
    ),
    (
        "pending on another broker",
        FETCHED,
        [*on(TWO, pending(7, 1)), *on(ONE, loaded(5, 0), fetch(5, 0))],
        OK,
        1,
    ),
    (
        "loaded and pending",
        FETCHED,
        on(ONE, loaded(5, 0), loaded(7, 1, PID), fetch(5, 0)),
        VIOLATED,
        1,
        ("g/in/0/0",),
        ((f"{ONE}.1.1", f"{ONE}.1.2"),),
    ),
    (
        "the group was unloaded and loaded again",
        FETCHED,
        on(ONE, committed(5, 0), pending(7, 1), GroupsUnloaded(partition=0), fetch(5, 0)),
        OK,
        1,
    ),
    (
        "an error returns no offset",
        FETCHED,
        on(ONE, pending(7, 1), fetch(-1, -1, error_code=88)),
        VACUOUS,
        0,
    ),
    # --- equal
    (
        "as in the log",
        EQUAL,
        [*on(ONE, fetch(7, 1)), *on("final", logged(5, 0), logged(7, 1))],
        OK,
        1,
    ),
    (
        "by the offset of its marker",
        EQUAL,
        [
            *on(ONE, fetch(5, 0)),
            *on("final", logged(5, 0, PID), logged(7, 1), marker(2, topic=OFFSETS)),
        ],
        VIOLATED,
        1,
        ("g/in/0",),
        ((f"{ONE}.1.0",),),
    ),
    (
        "an aborted one",
        EQUAL,
        [
            *on(ONE, fetch(5, 0)),
            *on(
                "final", logged(5, 0), logged(7, 1, PID), marker(2, topic=OFFSETS, is_commit=False)
            ),
        ],
        OK,
        1,
    ),
    (
        "an undecided one",
        EQUAL,
        [*on(ONE, fetch(5, 0)), *on("final", logged(5, 0), logged(7, 1, PID))],
        OK,
        1,
    ),
    (
        "forgotten",
        EQUAL,
        [*on(ONE, fetch(-1, -1)), *on("final", logged(5, 0), logged(-1, 1))],
        OK,
        1,
    ),
    (
        "committed after it was returned",
        EQUAL,
        [*on(ONE, fetch(5, 0), committed(7, 1)), *on("final", logged(5, 0), logged(7, 1))],
        VACUOUS,
        0,
    ),
]
