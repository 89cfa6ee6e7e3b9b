"""The records of `__remote_log_metadata`: partitioning, serialization and parsing.

Source: org.apache.kafka.server.log.remote.metadata.storage.{RemoteLogMetadataTopicPartitioner,
serialization.*}.
"""

from struct import Struct
from typing import Final

from kraftsim.core.tiered_storage.remote_segment import (
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)
from protocol.disk.leader_epoch_checkpoint import EpochStart
from protocol.remote_log import r00_remote_log_segment_metadata as r00
from protocol.remote_log import r01_remote_log_segment_metadata_update as r01
from protocol.remote_log.r00_remote_log_segment_metadata import RemoteLogSegmentMetadataRecord
from protocol.remote_log.r01_remote_log_segment_metadata_update import (
    RemoteLogSegmentMetadataUpdateRecord,
)
from protocol.remote_log.registry import build_record, parse_record

MURMUR_SEED: Final = 0x9747B28C
MURMUR_FACTOR: Final = 0x5BD1E995
UINT32: Final = 0xFFFFFFFF
_HALVES: Final = Struct(">qq")
RECORD_VERSION: Final = 0


def metadata_partition(owner: TopicIdPartition, partition_count: int) -> int:
    """Return the partition of the metadata topic for a partition."""
    most, least = _HALVES.unpack(owner.topic_id)
    hashed = 1
    for part in (_int64_hash(least), _int64_hash(most), owner.partition):
        hashed = (31 * hashed + part) & UINT32
    return (murmur2(hashed.to_bytes(4, "big")) & 0x7FFFFFFF) % partition_count


def segment_record(segment: RemoteSegment) -> bytes:
    """Return the record of a started copy."""
    owner = segment.owner
    record = RemoteLogSegmentMetadataRecord(
        remote_log_segment_id=r00.RemoteLogSegmentIdEntry(
            topic_id_partition=r00.TopicIdPartitionEntry(
                name=owner.topic, id=owner.topic_id, partition=owner.partition
            ),
            id=segment.segment_id,
        ),
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        broker_id=segment.broker_id,
        max_timestamp_ms=segment.max_timestamp_ms,
        event_timestamp_ms=segment.event_timestamp_ms,
        segment_leader_epochs=[
            r00.SegmentLeaderEpochEntry(leader_epoch=each.leader_epoch, offset=each.start_offset)
            for each in segment.leader_epochs
        ],
        segment_size_in_bytes=segment.size_bytes,
        custom_metadata=segment.custom_metadata,
        remote_log_segment_state=segment.state,
        txn_index_empty=segment.is_transaction_index_empty,
    )
    return bytes(build_record(record, RECORD_VERSION))


def update_record(update: SegmentUpdate) -> bytes:
    """Return the record of a segment's state change."""
    owner = update.owner
    record = RemoteLogSegmentMetadataUpdateRecord(
        remote_log_segment_id=r01.RemoteLogSegmentIdEntry(
            topic_id_partition=r01.TopicIdPartitionEntry(
                name=owner.topic, id=owner.topic_id, partition=owner.partition
            ),
            id=update.segment_id,
        ),
        broker_id=update.broker_id,
        event_timestamp_ms=update.event_timestamp_ms,
        custom_metadata=update.custom_metadata,
        remote_log_segment_state=update.state,
    )
    return bytes(build_record(record, RECORD_VERSION))


def parse_metadata(value: bytes) -> RemoteSegment | SegmentUpdate | None:
    """Parse a record; None for one about a whole partition. Raises MalformedMessage."""
    record = parse_record(value)
    if isinstance(record, RemoteLogSegmentMetadataRecord):
        entry = record.remote_log_segment_id
        return RemoteSegment(
            segment_id=entry.id,
            owner=TopicIdPartition(
                entry.topic_id_partition.id,
                entry.topic_id_partition.partition,
                entry.topic_id_partition.name,
            ),
            start_offset=record.start_offset,
            end_offset=record.end_offset,
            max_timestamp_ms=record.max_timestamp_ms,
            broker_id=record.broker_id,
            event_timestamp_ms=record.event_timestamp_ms,
            size_bytes=record.segment_size_in_bytes,
            leader_epochs=tuple(
                sorted(
                    EpochStart(each.leader_epoch, each.offset)
                    for each in record.segment_leader_epochs
                )
            ),
            state=SegmentState(record.remote_log_segment_state),
            custom_metadata=record.custom_metadata,
            is_transaction_index_empty=record.txn_index_empty,
        )
    if isinstance(record, RemoteLogSegmentMetadataUpdateRecord):
        named = record.remote_log_segment_id
        return SegmentUpdate(
            segment_id=named.id,
            owner=TopicIdPartition(
                named.topic_id_partition.id,
                named.topic_id_partition.partition,
                named.topic_id_partition.name,
            ),
            broker_id=record.broker_id,
            event_timestamp_ms=record.event_timestamp_ms,
            state=SegmentState(record.remote_log_segment_state),
            custom_metadata=record.custom_metadata,
        )
    return None


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash that Kafka's producers partition keys by.

    Source: org.apache.kafka.common.utils.Utils.murmur2.
    """
    hashed = MURMUR_SEED ^ len(data)
    whole = len(data) - len(data) % 4
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * MURMUR_FACTOR & UINT32
        part = (part ^ part >> 24) * MURMUR_FACTOR & UINT32
        hashed = (hashed * MURMUR_FACTOR & UINT32) ^ part
    if whole < len(data):
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * MURMUR_FACTOR & UINT32
    hashed = (hashed ^ hashed >> 13) * MURMUR_FACTOR & UINT32
    return hashed ^ hashed >> 15


def _int64_hash(value: int) -> int:
    """Return java.lang.Long.hashCode."""
    unsigned = value & 0xFFFFFFFFFFFFFFFF
    return (unsigned ^ unsigned >> 32) & UINT32
