"""RemoteLogSegmentMetadataUpdateRecord (1): the upload of a segment has finished, or its deletion
has started or finished.

Source: KIP-405; RemoteLogSegmentState, RemoteLogSegmentMetadataUpdateRecord.json.
"""

from protocol.schema import (
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


@message(key=1, kind="metadata", versions="0", flexible="0+")
class RemoteLogSegmentMetadataUpdateRecord:
    """The state is a RemoteLogSegmentState."""

    remote_log_segment_id: RemoteLogSegmentIdEntry = struct(RemoteLogSegmentIdEntry)
    broker_id: int = int32()
    event_timestamp_ms: int = int64()
    custom_metadata: bytes | None = byte_string(nullable="0+", default=None)
    remote_log_segment_state: int = int8()
