"""RemoteLogSegmentMetadataSnapshotRecord (3): a segment in a local snapshot of the metadata of a
partition's remote log.

The file is for one partition, which is not a field.
Source: KIP-405; RemoteLogSegmentMetadataSnapshotRecord.json.
"""

from protocol.schema import (
    array,
    boolean,
    byte_string,
    int8,
    int32,
    int64,
    message,
    structure,
    uuid,
)


@structure
class SegmentLeaderEpochEntry:
    """A leader epoch and its first offset in the segment."""

    leader_epoch: int = int32()
    offset: int = int64()


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
