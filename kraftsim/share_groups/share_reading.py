"""What a share-partition's leader reads of its partition: records for members, and the offset at
which a new group begins.

Source: kafka.server.share.{ShareFetchUtils, DelayedShareFetch}.
"""

from typing import Protocol, cast

from msgspec import Struct

from kraftsim.core.decision import Refusal
from kraftsim.groups.rules_group_configs import EARLIEST, LATEST, duration_ms
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.log_reading import first_record_aside
from kraftsim.partitions.partitions import HostingBroker
from kraftsim.partitions.rules_follower import OffsetAnswer, ReadBounds, SearchTimestamp
from kraftsim.partitions.rules_reading import decide_list_offset, decide_read
from kraftsim.server.serving_broker import ConfiguredBroker, ImageBroker, RunningBroker
from kraftsim.share_groups.rules_share_acquisition import AbortedRange
from kraftsim.share_groups.rules_share_sessions import SharedTopicPartition
from kraftsim.tiered_storage.tiered_storage import TieredBroker
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages import k02_list_offsets
from protocol.records.batches import RecordBatch, split_batches
from protocol.records.control_records import ControlType, control_type
from protocol.records.record import MalformedBatch

LIST_OFFSETS_VERSION = 9
NOTHING = memoryview(b"")
FIRST_READ_BYTES = 256 * 1024
"""Members offer tens of MB for a few hundred records: more is read only if that has too few."""
READ_GROWTH = 4


class SharedLogBroker(
    HostingBroker, ImageBroker, ConfiguredBroker, TieredBroker, RunningBroker, Protocol
):
    """A broker whose partitions share groups read."""


class SharedRead(Struct):
    """What was read of one partition. `is_enough`: it completes a wait, whatever its size.

    `remote_offset` is where the read has to begin in remote storage; None: it is complete.
    """

    hosted: HostedPartition
    records: memoryview = NOTHING
    aborted: tuple[AbortedRange, ...] = ()
    size_bytes: int = 0
    is_enough: bool = False
    remote_offset: int | None = None


def leader_of(broker: SharedLogBroker, asked: SharedTopicPartition) -> HostedPartition | Refusal:
    """Return the partition if this broker leads it."""
    assert asked.topic is not None, "unknown topic ids are refused before"
    hosted = broker.partitions.find(asked.topic, asked.id.partition)
    if hosted is None:
        return broker.not_hosted_error(asked.topic, asked.id.partition)
    if hosted.topic_id != asked.id.topic_id:
        return Refusal(ErrorCode.INCONSISTENT_TOPIC_ID, "the topic was created again")
    refusal = hosted.replica.refuse_epoch(-1, needs_leader=True)
    return hosted if refusal is None else refusal


def read_shared(
    broker: SharedLogBroker,
    asked: SharedTopicPartition,
    offset: int,
    bytes_max: int,
    *,
    bytes_min: int,
    enough_offset: int,
    at_least_one: bool,
    reads_committed: bool,
) -> SharedRead | Refusal:
    """Read whole batches from the one with an offset on: `bytes_max` of them, or fewer if these are
    at least `bytes_min` and reach `enough_offset`.

    Fails with the errors of a consumer's Fetch from a leader.
    """
    hosted = leader_of(broker, asked)
    if isinstance(hosted, Refusal):
        return hosted
    bounds = decide_read(hosted.replica, offset, reads_committed=reads_committed)
    if isinstance(bounds, Refusal):
        return bounds
    assert isinstance(bounds, ReadBounds), "there is no last fetched epoch"
    if offset < hosted.replica.local_start_offset:
        return SharedRead(hosted, remote_offset=offset, is_enough=True)
    if offset >= bounds.end_offset:
        readable = bounds.last_stable_offset if reads_committed else bounds.high_watermark
        return SharedRead(hosted, is_enough=offset > readable)
    try:
        size = min(max(FIRST_READ_BYTES, bytes_min), bytes_max)
        wanted = min(enough_offset, bounds.end_offset)
        while True:
            records = hosted.log.read(offset, size, bounds.end_offset, at_least_one=at_least_one)
            if size == bytes_max or (len(records) and hosted.log.read_end_offset >= wanted):
                break
            size = min(size * READ_GROWTH, bytes_max)
    except OSError as failure:
        broker.partitions.disk_failed(hosted.log.directory, "read", failure)
        return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "the partition cannot be read")
    read_end_offset = hosted.log.read_end_offset if len(records) else offset
    aborted = (
        tuple(
            AbortedRange(each.producer_id, each.first_offset)
            for each in hosted.log.aborted_between(offset, read_end_offset)
        )
        if reads_committed and len(records)
        else ()
    )
    has_more = read_end_offset < bounds.end_offset
    return SharedRead(
        hosted,
        records,
        aborted,
        size_bytes=bytes_max if has_more else min(len(records), bytes_max),
        is_enough=hosted.log.spans_segments(offset, bounds.end_offset),
    )


def batches_of(records: memoryview) -> list[RecordBatch]:
    """Return the batches that were read. Raises MalformedBatch."""
    return list(split_batches(records))


def abort_markers_of(batches: list[RecordBatch]) -> frozenset[int]:
    """Return the base offsets of the batches that are abort markers."""
    found = set()
    for batch in batches:
        if not batch.is_control:
            continue
        first = next(iter(batch.records()), None)
        if first is not None and control_type(first.key) is ControlType.ABORT:
            found.add(batch.base_offset)
    return frozenset(found)


def part_of(
    records: memoryview, batches: list[RecordBatch], first_offset: int, last_offset: int
) -> memoryview:
    """Return the batches from the one with the first offset to the one with the last.

    Source: ShareFetchUtils.maybeSliceFetchRecords.
    """
    first, end = 0, len(records)
    for batch in batches:
        if batch.base_offset <= first_offset:
            first = batch.position
        if batch.base_offset > last_offset:
            end = batch.position
            break
    return records[first:end]


async def initial_offset(
    broker: SharedLogBroker, asked: SharedTopicPartition, strategy: str
) -> int | Refusal:
    """Return where a group begins by its strategy (share.auto.offset.reset).

    Fails with the errors of ListOffsets; OFFSET_NOT_AVAILABLE also if no record is as late as the
    strategy wants.
    """
    hosted = leader_of(broker, asked)
    if isinstance(hosted, Refusal):
        return hosted
    if strategy == EARLIEST:
        timestamp = k02_list_offsets.EARLIEST_TIMESTAMP
    elif strategy in ("", LATEST):
        timestamp = k02_list_offsets.LATEST_TIMESTAMP
    else:
        timestamp = max(broker.world.clock.wall_ms() - duration_ms(strategy), 0)
    decided = decide_list_offset(hosted.replica, timestamp, api_version=LIST_OFFSETS_VERSION)
    if isinstance(decided, Refusal):
        return decided
    if isinstance(decided, OffsetAnswer):
        return decided.offset
    assert isinstance(decided, SearchTimestamp), "it is a time"
    try:
        offset = await _offset_of_time(broker, hosted, decided)
    except (MalformedBatch, MalformedMessage, OSError):
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the timestamp cannot be searched")
    if offset is None:
        return Refusal(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"Offset for timestamp {timestamp} not found for topic partition: "
            f"{hosted.topic}-{hosted.partition}",
        )
    return offset


async def _offset_of_time(
    broker: SharedLogBroker, hosted: HostedPartition, wanted: SearchTimestamp
) -> int | None:
    if hosted.replica.local_start_offset > hosted.replica.log_start_offset:
        assert broker.tiered is not None, "a tiered log exists only if remote storage is enabled"
        found = await broker.tiered.find_timestamp(hosted, wanted.timestamp)
        if found is not None:
            return found.offset
    search = hosted.log.find_timestamp(wanted.timestamp, wanted.end_offset)
    try:
        candidate = next(search)
        while True:
            record = await first_record_aside(broker.world, candidate.batch, candidate.timestamp)
            candidate = search.send(record)
    except StopIteration as end:
        return None if end.value is None else cast(int, end.value.offset)
