"""ShareGroupStatePartitionMetadata (15): the partitions for which the share coordinator keeps, or
will keep, the state of a share group.

The group coordinator sends initialize and delete requests (APIs 83 and 86), and records here their
progress.
Source: KIP-932; ShareGroupStatePartitionMetadataKey.json,
ShareGroupStatePartitionMetadataValue.json.
"""

from protocol.schema import array, int32, message, string, structure, uuid


@message(key=15, kind="coordinator-key", versions="0", flexible="none")
class ShareGroupStatePartitionMetadataKey:
    """By group."""

    group_id: str = string()


@structure
class TopicPartitionsInfo:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


@structure
class TopicInfo:
    """A topic."""

    topic_id: bytes = uuid()
    topic_name: str = string()


@message(key=15, kind="coordinator-value", versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    """Partitions whose state is being initialized, initialized, or being deleted."""

    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)
