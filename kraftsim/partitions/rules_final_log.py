"""The logs at the end of a run, decoded from the bytes of their segments, as input of the
invariants on brokers' guarantees.

Independent of brokers' memory, indexes and events: a log ends with its last valid batch, as log
recovery at the next start would find it, and has what the next coordinator would load.
Source: org.apache.kafka.storage.internals.log.LogSegment.recover,
kafka.coordinator.transaction.TransactionLog,
org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from kraftsim.core.record_keys import record_key
from kraftsim.events.event import Event
from kraftsim.partitions.events import (
    FinalBatch,
    FinalLog,
    FinalMarker,
    FinalOffset,
    FinalRecord,
    FinalTransaction,
)
from protocol.coordinator.consumer_groups import OffsetCommitKey, OffsetCommitValue
from protocol.coordinator.registry import CoordinatorTopic, parse_record
from protocol.coordinator.transactions import TransactionLogKey, TransactionLogValue
from protocol.malformed import MalformedMessage
from protocol.records.batches import RecordBatch, split_batches
from protocol.records.control_records import (
    ControlType,
    EndTxnMarker,
    control_type,
    parse_control_record,
)
from protocol.records.record import Record

COORDINATED: Final = {
    topic.value: topic
    for topic in (CoordinatorTopic.TRANSACTION_STATE, CoordinatorTopic.CONSUMER_OFFSETS)
}
FORGOTTEN: Final = -1
NO_PRODUCER_ID: Final = -1


# --------------------------------------------------------------------------------------------------
# The contents of batches: transaction markers, and the records of coordinators


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


# --------------------------------------------------------------------------------------------------
# The logs among the files of a run

SEGMENT_PATH: Final = re.compile(
    r"(?P<broker>[^/]+)/(?:.*/)?(?P<topic>[^/]+)-(?P<partition>\d+)/(?P<base_offset>\d{20})\.log"
)
NOT_LISTED: Final = -1


class LogName(NamedTuple):
    """One log on one disk."""

    broker: str
    topic: str
    partition: int


def final_log_events(files: Mapping[str, bytes], *, with_records: bool = True) -> Iterator[Event]:
    """Yield FinalLog, then its FinalBatch and FinalRecord events, for each log among the files,
    sorted by broker, topic and partition.

    `files` maps 'NODE/TOPIC-PARTITION/BASE_OFFSET.log' to the segment's bytes; other paths are
    ignored. Control batches have no records, their markers are FinalMarker; coordinators' records
    follow as FinalTransaction and FinalOffset.
    """
    for name, segments in sorted(_segments_by_log(files).items()):
        yield from _events_of_log(name, segments, with_records)


def final_batches(files: Mapping[str, bytes], topic: str) -> Iterator[list[RecordBatch]]:
    """Yield the batches of each partition of a topic, of the replica that has most of them."""
    longest: dict[int, list[RecordBatch]] = {}
    for name, segments in sorted(_segments_by_log(files).items()):
        if name.topic == topic:
            batches = list(_intact_batches(sorted(segments)))
            if len(batches) > len(longest.get(name.partition, [])):
                longest[name.partition] = batches
    yield from (batches for _, batches in sorted(longest.items()))


def _segments_by_log(files: Mapping[str, bytes]) -> dict[LogName, list[tuple[int, bytes]]]:
    logs: dict[LogName, list[tuple[int, bytes]]] = {}
    for path in sorted(files):
        found = SEGMENT_PATH.fullmatch(path)
        if found is not None:
            name = LogName(found["broker"], found["topic"], int(found["partition"]))
            logs.setdefault(name, []).append((int(found["base_offset"]), files[path]))
    return logs


def _events_of_log(
    name: LogName, segments: list[tuple[int, bytes]], with_records: bool
) -> Iterator[Event]:
    segments.sort()
    batches = list(_intact_batches(segments))
    records = (
        [event for batch in batches for event in _records(name, batch)] if with_records else []
    )
    yield FinalLog(
        topic=name.topic,
        partition=name.partition,
        log_start_offset=segments[0][0],
        next_offset=batches[-1].next_offset if batches else segments[0][0],
        batch_count=len(batches),
        broker=name.broker,
        record_count=len(records) if with_records else NOT_LISTED,
    )
    for batch in batches:
        yield FinalBatch(
            topic=name.topic,
            partition=name.partition,
            first_offset=batch.base_offset,
            last_offset=batch.last_offset,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            last_sequence=batch.last_sequence,
            record_count=batch.record_count,
            is_control=batch.is_control,
            crc=batch.crc,
            broker=name.broker,
            is_transactional=batch.is_transactional,
        )
    yield from records
    for batch in batches if with_records else ():
        if not batch.is_control and name.topic not in COORDINATED:
            continue
        with suppress(
            MalformedMessage
        ):  # such a record cannot be loaded: other invariants report it
            yield from (final_markers if batch.is_control else final_coordination)(
                name.topic, name.partition, name.broker, batch
            )


def _intact_batches(segments: list[tuple[int, bytes]]) -> Iterator[RecordBatch]:
    """Yield batches up to the first that is torn, corrupt, or out of order; the rest, in later
    segments too, is not part of the log.
    """
    next_offset = 0
    for _, data in segments:
        walk = split_batches(data)
        try:
            for batch in walk:
                if batch.base_offset < next_offset or not batch.crc_is_valid():
                    return
                yield batch
                next_offset = batch.next_offset
        except MalformedMessage:
            return
        if walk.is_torn:
            return


def _records(name: LogName, batch: RecordBatch) -> Iterator[FinalRecord]:
    if batch.is_control:
        return
    for record in batch.records():
        yield FinalRecord(
            topic=name.topic,
            partition=name.partition,
            offset=record.offset,
            record_key=record_key(record.key, record.value),
            broker=name.broker,
        )
