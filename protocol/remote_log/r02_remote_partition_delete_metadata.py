"""RemotePartitionDeleteMetadataRecord (2): all segments of a partition are marked for deletion,
being deleted, or deleted.

Source: KIP-405; RemotePartitionDeleteState, RemotePartitionDeleteMetadataRecord.json.
"""

from protocol.schema import int8, int32, int64, message, string, struct, structure, uuid


@structure
class TopicIdPartitionEntry:
    """A partition, by the name and id of its topic."""

    name: str = string()
    id: bytes = uuid()
    partition: int = int32()


@message(key=2, kind="metadata", versions="0", flexible="0+")
class RemotePartitionDeleteMetadataRecord:
    """The controller marks the partition; the remote log metadata manager deletes it."""

    topic_id_partition: TopicIdPartitionEntry = struct(TopicIdPartitionEntry)
    broker_id: int = int32()
    event_timestamp_ms: int = int64()
    remote_partition_delete_state: int = int8()
