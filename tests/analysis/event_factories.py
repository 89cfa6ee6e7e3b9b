"""Factories of events: the fields that matter to an invariant are parameters, the rest have fixed
values.
"""

from kraftsim.clients.events import RecordAcknowledged, RecordSent
from kraftsim.events.runs import Settled
from kraftsim.metadata.events import BrokerRegistered, ControllerElected
from kraftsim.partitions.events import BatchAppended, FinalBatch, FinalLog, FinalRecord
from kraftsim.producer_ids.events import (
    ProducerIdBlockAllocated,
    ProducerIdBlockReceived,
    ProducerIdReturned,
)
from kraftsim.raft.events import (
    FinalMetadata,
    FinalMetadataLog,
    HighWatermarkMoved,
    LeaderLogHeld,
    MetadataFlushed,
    MetadataTruncated,
    MetadataWritten,
    QuorumStateStored,
    SnapshotLoaded,
    SnapshotWritten,
    VoteSent,
)

NO_PRODUCER = (-1, -1, -1)


def registered(broker_epoch: int, broker_id: int = 1) -> BrokerRegistered:
    return BrokerRegistered(broker_id=broker_id, broker_epoch=broker_epoch, incarnation_id="i")


def allocated(
    first_producer_id: int,
    next_producer_id: int,
    broker_id: int = 1,
    broker_epoch: int = 1,
    *,
    given_by: str = "controller",
) -> ProducerIdBlockAllocated:
    return ProducerIdBlockAllocated(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        first_producer_id=first_producer_id,
        next_producer_id=next_producer_id,
        offset=next_producer_id,
        given_by=given_by,
    )


def allocated_by_quorum(first_producer_id: int, next_producer_id: int) -> ProducerIdBlockAllocated:
    """A block of a KRaft controller, whose record is at the offset equal to the next producer
    id.
    """
    return allocated(first_producer_id, next_producer_id, broker_id=9, given_by="quorum")


def received(first_producer_id: int, next_producer_id: int) -> ProducerIdBlockReceived:
    return ProducerIdBlockReceived(
        first_producer_id=first_producer_id, next_producer_id=next_producer_id
    )


def returned(
    producer_id: int, *, fresh: bool = True, owner: str | None = None
) -> ProducerIdReturned:
    """`owner` is a transactional id."""
    return ProducerIdReturned(
        producer_id=producer_id, producer_epoch=0, fresh=fresh, transactional_id=owner
    )


def appended(
    first_offset: int,
    last_offset: int,
    producer: tuple[int, int, int] = NO_PRODUCER,
    *,
    topic: str = "t",
    partition: int = 0,
) -> BatchAppended:
    """`producer` is producer id, epoch and base sequence."""
    producer_id, producer_epoch, base_sequence = producer
    return BatchAppended(
        topic=topic,
        partition=partition,
        leader_epoch=0,
        first_offset=first_offset,
        last_offset=last_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        last_sequence=base_sequence + last_offset - first_offset if base_sequence >= 0 else -1,
        record_count=last_offset - first_offset + 1,
        size_bytes=100,
        crc=first_offset,
    )


def final_batch(
    first_offset: int,
    last_offset: int,
    producer: tuple[int, int, int] = NO_PRODUCER,
    *,
    topic: str = "t",
    broker: str = "b",
) -> FinalBatch:
    producer_id, producer_epoch, base_sequence = producer
    return FinalBatch(
        topic=topic,
        partition=0,
        first_offset=first_offset,
        last_offset=last_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        last_sequence=-1,
        record_count=1,
        is_control=False,
        crc=0,
        broker=broker,
    )


def final_log(
    next_offset: int, record_count: int, *, log_start_offset: int = 0, topic: str = "t"
) -> FinalLog:
    return FinalLog(
        topic=topic,
        partition=0,
        log_start_offset=log_start_offset,
        next_offset=next_offset,
        batch_count=1,
        broker="b",
        record_count=record_count,
    )


def final_record(
    offset: int, record_key: str, *, topic: str = "t", broker: str = "b"
) -> FinalRecord:
    return FinalRecord(
        topic=topic, partition=0, offset=offset, record_key=record_key, broker=broker
    )


def sent(record_key: str, *, topic: str = "t") -> RecordSent:
    return RecordSent(client_id="c", topic=topic, partition=0, record_key=record_key)


def acknowledged(offset: int, record_key: str, *, topic: str = "t") -> RecordAcknowledged:
    return RecordAcknowledged(
        client_id="c", topic=topic, partition=0, record_key=record_key, offset=offset
    )


def elected(leader_epoch: int) -> ControllerElected:
    return ControllerElected(leader_epoch=leader_epoch, epoch_start_offset=0)


def voted(leader_epoch: int, candidate_id: int) -> VoteSent:
    return VoteSent(leader_epoch=leader_epoch, candidate_id=candidate_id)


def stored(leader_epoch: int, voted_id: int, leader_id: int = -1) -> QuorumStateStored:
    return QuorumStateStored(leader_epoch=leader_epoch, leader_id=leader_id, voted_id=voted_id)


def wrote_snapshot(end_offset: int) -> SnapshotWritten:
    return SnapshotWritten(end_offset=end_offset, epoch=1, size_bytes=1)


def holds(leader_epoch: int, epoch: int, first_offset: int, end_offset: int) -> LeaderLogHeld:
    return LeaderLogHeld(
        leader_epoch=leader_epoch, epoch=epoch, first_offset=first_offset, end_offset=end_offset
    )


def committed(
    leader_epoch: int, high_watermark: int, last_epoch: int | None = None, *, is_leader: bool = True
) -> HighWatermarkMoved:
    return HighWatermarkMoved(
        leader_epoch=leader_epoch,
        high_watermark=high_watermark,
        last_epoch=leader_epoch if last_epoch is None else last_epoch,
        voter_count=3,
        is_leader=is_leader,
    )


def written(
    epoch: int,
    first_offset: int,
    crc: int = 0,
    *,
    last_offset: int | None = None,
    previous_epoch: int = 1,
) -> MetadataWritten:
    return MetadataWritten(
        epoch=epoch,
        first_offset=first_offset,
        last_offset=first_offset if last_offset is None else last_offset,
        previous_epoch=previous_epoch,
        crc=crc,
    )


def flushed(end_offset: int, *, is_voter: bool = True) -> MetadataFlushed:
    return MetadataFlushed(end_offset=end_offset, is_voter=is_voter)


def truncated_to(end_offset: int) -> MetadataTruncated:
    return MetadataTruncated(leader_epoch=1, end_offset=end_offset)


def loaded(end_offset: int) -> SnapshotLoaded:
    return SnapshotLoaded(end_offset=end_offset, epoch=1)


def left(end_offset: int, *, controller: str = "a") -> FinalMetadataLog:
    """The disk of a controller has its metadata log from the start up to this offset."""
    return FinalMetadataLog(controller=controller, first_offset=0, end_offset=end_offset)


def said(
    from_offset: int, end_offset: int, digest: str, *, epoch: int = 1, controller: str = "a"
) -> FinalMetadata:
    return FinalMetadata(
        controller=controller,
        from_offset=from_offset,
        end_offset=end_offset,
        epoch=epoch,
        digest=digest,
    )


def settled(what: str, after_ms: int, *, is_settled: bool = True) -> Settled:
    return Settled(what=what, after_ms=after_ms, limit_ms=10_000, is_settled=is_settled)
