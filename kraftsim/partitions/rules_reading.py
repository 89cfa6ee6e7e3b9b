"""Reads of a partition: visibility by isolation level, and offset lookups.

Followers read up to the log end offset, consumers up to the high watermark, read_committed
consumers up to the last stable offset. Since Fetch 11 consumers may read from any replica
(KIP-392).
Source: kafka.cluster.Partition.{readRecords, fetchOffsetForTimestamp, lastOffsetForLeaderEpoch}.
"""

from dataclasses import dataclass
from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.partitions.rules_follower import (
    NOTHING_FOUND,
    Diverging,
    OffsetAnswer,
    ReadBounds,
    SearchMaxTimestamp,
    SearchTimestamp,
)
from kraftsim.partitions.rules_log import NO_LEADER_EPOCH
from kraftsim.partitions.rules_replica import PartitionReplica
from protocol.errors import ErrorCode
from protocol.messages import k02_list_offsets as list_offsets
from protocol.records.batches import (
    COMPRESSION_MASK,
    HEADER_SIZE_BYTES,
    MAGIC,
    MAGIC_POSITION,
    RecordBatch,
)
from protocol.records.message_sets import AnyBatch, split_any_batches
from protocol.records.record import Bytes, Compression, MalformedBatch, estimated_plain_bytes

FIRST_VERSION_OF_SPECIAL_TIMESTAMP: Final = {
    list_offsets.LATEST_TIMESTAMP: 0,
    list_offsets.EARLIEST_TIMESTAMP: 0,
    list_offsets.MAX_TIMESTAMP: 7,
    list_offsets.EARLIEST_LOCAL_TIMESTAMP: 8,
    list_offsets.LATEST_TIERED_TIMESTAMP: 9,
    list_offsets.EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
"""ListOffsets versions.   Source: KIP-734, KIP-405, KIP-1005, KIP-1023."""


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The highest epoch of this log that is not above the requested one, and its end offset; -1, -1
    if there is none.
    """

    leader_epoch: int
    end_offset: int


def decide_read(
    replica: PartitionReplica,
    fetch_offset: int,
    *,
    current_leader_epoch: int = NO_LEADER_EPOCH,
    last_fetched_epoch: int = NO_LEADER_EPOCH,
    reads_committed: bool = False,
    is_follower: bool = False,
    needs_leader: bool = True,
) -> ReadBounds | Diverging | Refusal:
    """Return the readable range: for a follower up to the end, for a consumer up to the high
    watermark. Missing epochs are -1.

    Fails with FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER or
    OFFSET_OUT_OF_RANGE; OFFSET_MOVED_TO_TIERED_STORAGE for a follower that fetches below
    `local_start_offset`. A consumer reads that from remote storage: its range begins below
    `local_start_offset`.
    """
    refusal = replica.refuse_epoch(current_leader_epoch, needs_leader=needs_leader)
    if refusal is not None:
        return refusal
    if last_fetched_epoch != NO_LEADER_EPOCH:
        leader_epoch, end_offset = replica.epochs.end_offset_for(
            last_fetched_epoch, replica.log_end_offset
        )
        if leader_epoch == NO_LEADER_EPOCH or fetch_offset < replica.log_start_offset:
            return Refusal(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"epoch {last_fetched_epoch} or offset {fetch_offset} is not in this log",
            )
        if leader_epoch < last_fetched_epoch or end_offset < fetch_offset:
            return Diverging(leader_epoch=leader_epoch, end_offset=end_offset)
    if not replica.log_start_offset <= fetch_offset <= replica.log_end_offset:
        return Refusal(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {fetch_offset}, the log has {replica.log_start_offset} to "
            f"{replica.log_end_offset}",
        )
    if is_follower and fetch_offset < replica.local_start_offset:
        why = (
            f"offset {fetch_offset} is in remote storage, the local log starts at "
            f"{replica.local_start_offset}"
        )
        return Refusal(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, why)
    visible_end = (
        replica.log_end_offset
        if is_follower
        else replica.last_stable_offset
        if reads_committed
        else replica.high_watermark
    )
    return ReadBounds(
        first_offset=fetch_offset,
        end_offset=max(visible_end, fetch_offset),
        high_watermark=replica.high_watermark,
        last_stable_offset=replica.last_stable_offset,
        log_start_offset=replica.log_start_offset,
    )


def decide_list_offset(
    replica: PartitionReplica,
    timestamp: int,
    *,
    api_version: int,
    current_leader_epoch: int = NO_LEADER_EPOCH,
    reads_committed: bool = False,
    is_follower: bool = False,
    needs_leader: bool = True,
) -> OffsetAnswer | SearchTimestamp | SearchMaxTimestamp | Refusal:
    """Return the ListOffsets result for a timestamp or a special one (-1 to -5), or what to search
    in the segments.

    Fails with the errors of leader epochs, UNSUPPORTED_VERSION for a special timestamp that the
    version does not have, or OFFSET_NOT_AVAILABLE: a new leader does not know the high watermark
    yet.
    """
    refusal = replica.refuse_epoch(current_leader_epoch, needs_leader=needs_leader)
    if refusal is not None:
        return refusal
    if timestamp < 0 and api_version < FIRST_VERSION_OF_SPECIAL_TIMESTAMP.get(
        timestamp, api_version + 1
    ):
        return Refusal(
            ErrorCode.UNSUPPORTED_VERSION, f"ListOffsets {api_version} has no timestamp {timestamp}"
        )
    visible_end = (
        replica.log_end_offset
        if is_follower
        else replica.last_stable_offset
        if reads_committed
        else replica.high_watermark
    )
    match timestamp:
        case list_offsets.LATEST_TIMESTAMP if not is_follower and replica.is_high_watermark_unknown:
            return Refusal(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"the high watermark {replica.high_watermark} is from before this leader epoch",
            )
        case list_offsets.LATEST_TIMESTAMP:
            return OffsetAnswer(offset=visible_end, timestamp=-1, leader_epoch=replica.leader_epoch)
        case list_offsets.EARLIEST_TIMESTAMP:
            return _place(replica, replica.log_start_offset)
        case list_offsets.EARLIEST_LOCAL_TIMESTAMP:
            return _place(replica, replica.local_start_offset)
        case list_offsets.MAX_TIMESTAMP:
            return SearchMaxTimestamp(end_offset=visible_end)
        case list_offsets.LATEST_TIERED_TIMESTAMP:
            return (
                NOTHING_FOUND
                if replica.remote_end_offset < 0
                else _place(replica, replica.remote_end_offset)
            )
        case list_offsets.EARLIEST_PENDING_UPLOAD_TIMESTAMP:
            return (
                _place(replica, max(replica.remote_end_offset + 1, replica.log_start_offset))
                if replica.is_tiered
                else NOTHING_FOUND
            )
        case _:
            return SearchTimestamp(timestamp=timestamp, end_offset=visible_end)


def _place(replica: PartitionReplica, offset: int) -> OffsetAnswer:
    epoch = replica.epochs.epoch_at(offset)
    return OffsetAnswer(
        offset=offset, timestamp=-1, leader_epoch=NO_LEADER_EPOCH if epoch is None else epoch
    )


def decide_epoch_end(
    replica: PartitionReplica,
    leader_epoch: int,
    *,
    current_leader_epoch: int = NO_LEADER_EPOCH,
    needs_leader: bool = True,
) -> EpochEnd | Refusal:
    """Return the end offset of an epoch in this log (OffsetForLeaderEpoch).

    Fails with the errors of leader epochs.
    """
    refusal = replica.refuse_epoch(current_leader_epoch, needs_leader=needs_leader)
    return refusal or EpochEnd(*replica.epochs.end_offset_for(leader_epoch, replica.log_end_offset))


# --------------------------------------------------------------------------------------------------
# Estimates of the work to scan records, before anything is decompressed
#
# A kilobyte may decompress to a megabyte, and a megabyte may have 150,000 records: scanning them
# takes longer than other clients should wait. Larger scans therefore run in a thread, on every
# path: Produce, searches by timestamp, down-conversion for old consumers, compaction. A producer
# may write anything into a header, so the estimates are upper bounds where that is affordable.
# Apache Kafka scans in the threads of KafkaRequestHandlerPool and LogCleaner.

RECORD_BYTES_MIN: Final = 7
"""Length, attributes, both deltas, two sizes and the header count, at least a byte each."""
LOOKED_THROUGH_BYTES_MAX: Final = 128 * 1024
"""Up to this size records are scanned on the event loop: at most 18,700 records, which take 20 to
60 ms.
"""
BELIEVED_BYTES_MAX: Final = 8 * 1024
"""The total of gzip bytes whose declared sizes are trusted: if wrong, they hold 8 MB, which takes
20 ms to decompress.
"""
BELIEVED_COST: Final = LOOKED_THROUGH_BYTES_MAX // BELIEVED_BYTES_MAX
"""A gzip byte counts as at least this many: it bounds the error of declared sizes.

Of several members only the last one's size is visible.
"""
_ATTRIBUTES_POSITION: Final = 22
_RECORD_COUNT_POSITION: Final = 57


def produced_work(records: Bytes | None) -> tuple[int, int]:
    """Return the upper bound of a format-2 batch's decompressed size, and of the bytes that a walk
    over its records reads.

    A walk reads each record's length once, whatever its size, after decompressing the batch. Both
    are 0 for other formats.
    """
    if records is None or len(records) < HEADER_SIZE_BYTES or records[MAGIC_POSITION] != MAGIC:
        return 0, 0
    codec = records[_ATTRIBUTES_POSITION] & COMPRESSION_MASK
    count_bytes = RECORD_BYTES_MIN * max(
        int.from_bytes(records[_RECORD_COUNT_POSITION:HEADER_SIZE_BYTES], signed=True), 0
    )
    if not codec:
        return len(records), min(count_bytes, len(records))
    if codec > Compression.ZSTD:
        return 0, 0
    plain_bytes = max(
        estimated_plain_bytes(Compression(codec), memoryview(records)[HEADER_SIZE_BYTES:]),
        count_bytes,
    )
    return plain_bytes, plain_bytes


def believed_bytes(records: Bytes | None) -> int:
    """Return the size of a format-2 batch whose estimate relies on its declared size, which may be
    wrong: a short gzip one.
    """
    if (
        records is None
        or len(records) < HEADER_SIZE_BYTES
        or records[_ATTRIBUTES_POSITION] & COMPRESSION_MASK != Compression.GZIP
    ):
        return 0
    return len(records)


def takes_long(data: Bytes | None, bytes_max: int = LOOKED_THROUGH_BYTES_MAX) -> bool:
    """Return whether scanning the records of these batches and messages exceeds the limit for the
    event loop.
    """
    if not data:
        return False
    if len(data) > bytes_max:
        return True
    left_bytes = bytes_max
    try:
        for batch in split_any_batches(data):
            left_bytes -= batch_work(batch)
            if left_bytes < 0:
                return True
    except MalformedBatch:
        pass  # the rest is not scanned
    return False


def batch_work(batch: AnyBatch) -> int:
    """Return the number of bytes to scan for all records of a batch or message, as far as known in
    advance.
    """
    size_bytes: int = batch.size_bytes
    believed_cost = (
        size_bytes * BELIEVED_COST if batch.attributes & COMPRESSION_MASK == Compression.GZIP else 0
    )
    return max(_announced_work(batch, size_bytes), believed_cost)


def _announced_work(batch: AnyBatch, size_bytes: int) -> int:
    if isinstance(batch, RecordBatch):
        return produced_work(batch.view())[0]
    if not batch.attributes & COMPRESSION_MASK:
        return size_bytes
    try:
        value = batch.value
        return size_bytes + (
            0 if value is None else estimated_plain_bytes(batch.compression, memoryview(value))
        )
    except MalformedBatch:
        return size_bytes
