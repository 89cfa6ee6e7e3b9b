"""The markers and the coordinators' records in the final logs of a run, decoded from their bytes.

Independent of the coordinators' memory: a log has what the next coordinator would load.
Source: kafka.coordinator.transaction.TransactionLog,
org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde.
"""

from collections.abc import Iterator
from typing import Final

from kraftsim.events.event import Event
from kraftsim.events.partitions import FinalMarker, FinalOffset, FinalTransaction
from protocol.batches import RecordBatch
from protocol.control_records import ControlType, EndTxnMarker, control_type, parse_control_record
from protocol.coordinator.g01_offset_commit import OffsetCommitKey, OffsetCommitValue
from protocol.coordinator.registry import CoordinatorTopic, parse_record
from protocol.coordinator.t00_transaction_log import TransactionLogKey, TransactionLogValue
from protocol.records import Record

COORDINATED: Final = {
    topic.value: topic
    for topic in (CoordinatorTopic.TRANSACTION_STATE, CoordinatorTopic.CONSUMER_OFFSETS)
}
FORGOTTEN: Final = -1
NO_PRODUCER_ID: Final = -1


def final_markers(
    topic: str, partition: int, broker: str, batch: RecordBatch
) -> Iterator[FinalMarker]:
    """Yield the marker of a control batch; other control records are skipped."""
    for record in batch.records():
        key = None if record.key is None else bytes(record.key)
        kind = control_type(key)
        if kind not in (ControlType.COMMIT, ControlType.ABORT):
            continue
        marker = parse_control_record(key, None if record.value is None else bytes(record.value))
        assert isinstance(marker, EndTxnMarker), "a marker ends a transaction"
        yield FinalMarker(
            topic=topic,
            partition=partition,
            offset=record.offset,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            is_commit=kind is ControlType.COMMIT,
            coordinator_epoch=marker.coordinator_epoch,
            broker=broker,
        )


def final_coordination(
    topic: str, partition: int, broker: str, batch: RecordBatch
) -> Iterator[Event]:
    """Yield the transactions and committed offsets of a data batch; nothing for other topics."""
    coordinated = COORDINATED.get(topic)
    if coordinated is None:
        return
    for record in batch.records():
        found = (
            None
            if record.key is None
            else parse_record(
                coordinated,
                bytes(record.key),
                None if record.value is None else bytes(record.value),
            )
        )
        if found is None:
            continue
        key, value = found
        if isinstance(key, TransactionLogKey):
            yield _transaction(
                partition,
                broker,
                record,
                key,
                value if isinstance(value, TransactionLogValue) else None,
            )
        elif isinstance(key, OffsetCommitKey):
            yield FinalOffset(
                offsets_partition=partition,
                log_offset=record.offset,
                group_id=key.group,
                topic=key.topic,
                partition=key.partition,
                committed_offset=value.offset
                if isinstance(value, OffsetCommitValue)
                else FORGOTTEN,
                producer_id=batch.producer_id if batch.is_transactional else NO_PRODUCER_ID,
                broker=broker,
            )


def _transaction(
    partition: int,
    broker: str,
    record: Record,
    key: TransactionLogKey,
    value: TransactionLogValue | None,
) -> FinalTransaction:
    partitions = (
        []
        if value is None
        else [
            f"{each.topic}-{number}"
            for each in value.transaction_partitions or ()
            for number in each.partition_ids
        ]
    )
    return FinalTransaction(
        partition=partition,
        offset=record.offset,
        transactional_id=key.transactional_id,
        producer_id=NO_PRODUCER_ID if value is None else value.producer_id,
        producer_epoch=-1 if value is None else value.producer_epoch,
        status=FORGOTTEN if value is None else value.transaction_status,
        partitions=",".join(sorted(partitions)),
        broker=broker,
    )
