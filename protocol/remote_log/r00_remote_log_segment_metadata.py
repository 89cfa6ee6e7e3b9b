"""RemoteLogSegmentMetadataRecord (0): the upload of a segment to remote storage has started.

It can be read from there once record 1 marks it as finished.
Source: KIP-405; RemoteLogSegmentMetadataRecord.json.
"""

from protocol.schema import (
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
