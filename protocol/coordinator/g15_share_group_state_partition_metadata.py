"""ShareGroupStatePartitionMetadata (15): for which partitions the share coordinator keeps, or shall keep, the state of a share group.

The group coordinator asks it to begin and to forget (APIs 83 and 86), and remembers here how far that is.
Source: KIP-932; ShareGroupStatePartitionMetadataKey.json, ShareGroupStatePartitionMetadataValue.json.
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
    """Partitions whose state begins, exists, or goes."""

    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)
