"""The events of one transaction that consumes, transforms and produces, as clients, brokers, the
final logs and groups report them: what the cases of transactions are made of.
"""

from typing import TypedDict

from kraftsim.clients.events import RecordAcknowledged, RecordRead, RecordSent
from kraftsim.clients.events_transactions import (
    CopyExpected,
    CopyRead,
    TransactionalIdTaken,
    TransactionEndAsked,
    TransactionEnded,
)
from kraftsim.events.event import Event
from kraftsim.events.runs import Settled
from kraftsim.groups.events import (
    GroupsLoaded,
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
    PartitionTruncated,
)
from kraftsim.partitions.events_transactions import LastStableOffsetMoved, MarkerAppended
from kraftsim.transactions.events import TransactionStateChanged
from tests.analysis.history import LoggedEvent

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


GROUPS_LOADED = GroupsLoaded(partition=0, group_count=1, next_offset=1)
GROUPS_UNLOADED = GroupsUnloaded(partition=0)


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
