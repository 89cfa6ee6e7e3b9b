"""StreamsGroupMetadata (17): a group of Kafka Streams members exists, at this group epoch.

The epoch grows whenever members, topics or the topology change.
Source: KIP-1071, KIP-1331; StreamsGroupMetadataKey.json, StreamsGroupMetadataValue.json.
"""

from protocol.schema import array, int32, int64, message, string, structure


@message(key=17, kind="coordinator-key", versions="0", flexible="none")
class StreamsGroupMetadataKey:
    """By group."""

    group_id: str = string()


@structure
class LastAssignmentConfig:
    """A configuration of the last assignment."""

    key: str = string()
    value: str = string()


@message(key=17, kind="coordinator-value", versions="0", flexible="0+")
class StreamsGroupMetadataValue:
    """With the hash of the topics, and how far topology and its description are validated and
    stored (after 4.1).
    """

    epoch: int = int32()
    metadata_hash: int = int64()
    validated_topology_epoch: int = int32(tag=0, tagged="0+", default=-1)
    last_assignment_configs: list[LastAssignmentConfig] | None = array(
        LastAssignmentConfig, tag=1, tagged="0+", nullable="0+"
    )
    stored_description_topology_epoch: int = int32(tag=2, tagged="0+", default=-1)
    failed_description_topology_epoch: int = int32(tag=3, tagged="0+", default=-1)
