"""The logs at the end of a run, decoded from the bytes of their segments, as input of the
invariants on brokers' guarantees.

Independent of brokers' memory, indexes and events: a log ends with its last valid batch, as log
recovery at the next start would find it.
Source: org.apache.kafka.storage.internals.log.LogSegment.recover.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from kraftsim.core.partitions.final_coordination import final_coordination, final_markers
from kraftsim.events.event import Event
from kraftsim.events.partitions import FinalBatch, FinalLog, FinalRecord
from protocol.batches import RecordBatch, split_batches
from protocol.malformed import MalformedMessage

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
        key = b"" if record.key is None else bytes(record.key)
        yield FinalRecord(
            topic=name.topic,
            partition=name.partition,
            offset=record.offset,
            record_key=key.decode("utf-8", "backslashreplace"),
            broker=name.broker,
        )
