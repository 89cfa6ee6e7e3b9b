"""ConsumerGroupPartitionMetadata (4): the topics that a consumer group had subscribed to, when its
epoch was decided (up to 4.0).

4.1 and later only write tombstones, since a hash in record 3 says as much.
Source: KIP-848, KIP-1101; ConsumerGroupPartitionMetadataKey.json,
ConsumerGroupPartitionMetadataValue.json.
"""

from protocol.schema import array, int32, message, string, structure, uuid


@message(key=4, kind="coordinator-key", versions="0", flexible="none")
class ConsumerGroupPartitionMetadataKey:
    """By group."""

    group_id: str = string()


@structure
class PartitionMetadata:
    """The racks of a partition's replicas, as written up to 4.0."""

    partition: int = int32()
    racks: list[str] = array(string)


@structure
class TopicMetadata:
    """A topic with its number of partitions."""

    topic_id: bytes = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


@message(key=4, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    """A change makes a new group epoch."""

    topics: list[TopicMetadata] = array(TopicMetadata)
