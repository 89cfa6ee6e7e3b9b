"""Records of `__remote_log_metadata`: segments in remote storage and partitions that are deleted
there, their frames, and their classes by number.
"""

from enum import IntEnum
from functools import cache

from protocol.declarations import classes_by_number
from protocol.records.record_frames import build_frame, frame_record_version, parse_frame
from protocol.schema import (
    Message,
    array,
    boolean,
    byte_string,
    int8,
    int32,
    int64,
    message,
    string,
    struct,
    structure,
    uuid,
)

# --------------------------------------------------------------------------------------------------
# Records of `__remote_log_metadata`: segments in remote storage, and partitions that are deleted
# there
#
# Source: KIP-405; the JSON definitions named at each record.

# --------------------------------------------------------------------------------------------------
# RemoteLogSegmentMetadataRecord (0): the upload of a segment to remote storage has started.
#
# It can be read from there once record 1 marks it as finished.
# Source: KIP-405; RemoteLogSegmentMetadataRecord.json.


@structure
class TopicIdPartitionEntry:
    """A partition, by the name and id of its topic."""

    name: str = string()
    id: bytes = uuid()
    partition: int = int32()


@structure
class RemoteLogSegmentIdEntry:
    """A segment in remote storage."""

    topic_id_partition: TopicIdPartitionEntry = struct(TopicIdPartitionEntry)
    id: bytes = uuid()


@structure
class SegmentLeaderEpochEntry:
    """A leader epoch and its first offset in the segment."""

    leader_epoch: int = int32()
    offset: int = int64()


@message(key=0, kind="metadata", versions="0", flexible="0+")
class RemoteLogSegmentMetadataRecord:
    """The range of the log in it; both offsets are inclusive."""

    remote_log_segment_id: RemoteLogSegmentIdEntry = struct(RemoteLogSegmentIdEntry)
    start_offset: int = int64()
    end_offset: int = int64()
    broker_id: int = int32()
    max_timestamp_ms: int = int64()
    event_timestamp_ms: int = int64()
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = array(SegmentLeaderEpochEntry)
    segment_size_in_bytes: int = int32()
    custom_metadata: bytes | None = byte_string(nullable="0+", default=None)
    remote_log_segment_state: int = int8()
    txn_index_empty: bool = boolean(tag=0, tagged="0+")


# --------------------------------------------------------------------------------------------------
# RemoteLogSegmentMetadataUpdateRecord (1): the upload of a segment has finished, or its deletion
# has started or finished.
#
# Source: KIP-405; RemoteLogSegmentState, RemoteLogSegmentMetadataUpdateRecord.json.


@message(key=1, kind="metadata", versions="0", flexible="0+")
class RemoteLogSegmentMetadataUpdateRecord:
    """The state is a RemoteLogSegmentState."""

    remote_log_segment_id: RemoteLogSegmentIdEntry = struct(RemoteLogSegmentIdEntry)
    broker_id: int = int32()
    event_timestamp_ms: int = int64()
    custom_metadata: bytes | None = byte_string(nullable="0+", default=None)
    remote_log_segment_state: int = int8()


# --------------------------------------------------------------------------------------------------
# RemotePartitionDeleteMetadataRecord (2): all segments of a partition are marked for deletion,
# being deleted, or deleted.
#
# Source: KIP-405; RemotePartitionDeleteState, RemotePartitionDeleteMetadataRecord.json.


@message(key=2, kind="metadata", versions="0", flexible="0+")
class RemotePartitionDeleteMetadataRecord:
    """The controller marks the partition; the remote log metadata manager deletes it."""

    topic_id_partition: TopicIdPartitionEntry = struct(TopicIdPartitionEntry)
    broker_id: int = int32()
    event_timestamp_ms: int = int64()
    remote_partition_delete_state: int = int8()


# --------------------------------------------------------------------------------------------------
# RemoteLogSegmentMetadataSnapshotRecord (3): a segment in a local snapshot of the metadata of a
# partition's remote log.
#
# The file is for one partition, which is not a field.
# Source: KIP-405; RemoteLogSegmentMetadataSnapshotRecord.json.


@message(key=3, kind="metadata", versions="0", flexible="0+")
class RemoteLogSegmentMetadataSnapshotRecord:
    """The content of records 0 and 1 of a segment, in one."""

    segment_id: bytes = uuid()
    start_offset: int = int64()
    end_offset: int = int64()
    broker_id: int = int32()
    max_timestamp_ms: int = int64()
    event_timestamp_ms: int = int64()
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = array(SegmentLeaderEpochEntry)
    segment_size_in_bytes: int = int32()
    custom_metadata: bytes | None = byte_string(nullable="0+", default=None)
    remote_log_segment_state: int = int8()
    txn_index_empty: bool = boolean(tag=0, tagged="0+")


# --------------------------------------------------------------------------------------------------
# Frames the records of `__remote_log_metadata` and finds their classes, which are declared in
# `records`
#
# The frame is that of `record_frames`, with numbers of their own; the key of a log record is null.
# Source: KIP-405; RemoteLogMetadataSerde, BytesApiMessageSerde.

MODULES = ("records",)
"""The modules that declare records."""

build_record = build_frame
record_version = frame_record_version


class RemoteLogSegmentState(IntEnum):
    """The state of a segment's upload."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class RemotePartitionDeleteState(IntEnum):
    """The state of a partition's deletion."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


def parse_record(value: bytes) -> Message:
    """Return the record in the value of a log record; `record_version` returns its version.

    Raises MalformedMessage.
    """
    return parse_frame(value, record_class)


@cache
def declared_records() -> tuple[type, ...]:
    """Return the class of every record, by ascending number."""
    return tuple(_classes().values())


def record_class(number: int) -> type:
    """Return the class of a record. Raises KeyError."""
    return _classes()[number]


@cache
def _classes() -> dict[int, type]:
    return classes_by_number((f"{__package__}.{name}" for name in MODULES), "metadata")
