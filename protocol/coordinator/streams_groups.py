"""Records of the groups of Kafka Streams.

Source: KIP-1071; StreamsCoordinatorRecordHelpers.
"""

from protocol.schema import (
    array,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    structure,
    uint16,
)

# --------------------------------------------------------------------------------------------------
# StreamsGroupMetadata (17): a group of Kafka Streams members exists, at this group epoch.
#
# The epoch grows whenever members, topics or the topology change.
# Source: KIP-1071, KIP-1331; StreamsGroupMetadataKey.json, StreamsGroupMetadataValue.json.


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


# --------------------------------------------------------------------------------------------------
# StreamsGroupMemberMetadata (19): the metadata that a member of a streams group sent.
#
# Its process and its tags influence the assignment of tasks.
# Source: KIP-1071; StreamsGroupMemberMetadataKey.json, StreamsGroupMemberMetadataValue.json.


@message(key=19, kind="coordinator-key", versions="0", flexible="none")
class StreamsGroupMemberMetadataKey:
    """By group and member."""

    group_id: str = string()
    member_id: str = string()


@structure
class Endpoint:
    """The endpoint for interactive queries of the member's state stores."""

    host: str = string()
    port: int = uint16()


@structure
class KeyValue:
    """A tag and its value."""

    key: str = string()
    value: str = string()


@message(key=19, kind="coordinator-value", versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue:
    """The member's identity, and its endpoint for other members."""

    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32(default=-1)
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = struct(Endpoint, nullable="0+", default=None)
    client_tags: list[KeyValue] = array(KeyValue)


# --------------------------------------------------------------------------------------------------
# StreamsGroupTargetAssignmentMetadata (20): the group epoch for which a streams group's target
# assignment was made.
#
# If it is lower than the group epoch, the assignment is not computed yet.
# Source: KIP-1071, KIP-1263; StreamsGroupTargetAssignmentMetadataKey.json,
# StreamsGroupTargetAssignmentMetadataValue.json.


@message(key=20, kind="coordinator-key", versions="0", flexible="none")
class StreamsGroupTargetAssignmentMetadataKey:
    """By group."""

    group_id: str = string()


@message(key=20, kind="coordinator-value", versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    """Written after the members' records of the same assignment."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, tagged="0+", ignorable=True)


# --------------------------------------------------------------------------------------------------
# StreamsGroupTargetAssignmentMember (21): the target tasks of a member of a streams group.
#
# The member reaches them over several heartbeats.
# Source: KIP-1071; StreamsGroupTargetAssignmentMemberKey.json,
# StreamsGroupTargetAssignmentMemberValue.json.


@message(key=21, kind="coordinator-key", versions="0", flexible="none")
class StreamsGroupTargetAssignmentMemberKey:
    """By group and member."""

    group_id: str = string()
    member_id: str = string()


@structure
class TaskIds:
    """Tasks of one subtopology, by partition."""

    subtopology_id: str = string()
    partitions: list[int] = array(int32)


@message(key=21, kind="coordinator-value", versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    """All tasks of the target assignment."""

    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


# --------------------------------------------------------------------------------------------------
# StreamsGroupCurrentMemberAssignment (22): the current tasks of a member of a streams group, and
# those that it must revoke first.
#
# A task is assigned to the next member only after the previous one has revoked it.
# Source: KIP-1071; StreamsGroupCurrentMemberAssignmentKey.json,
# StreamsGroupCurrentMemberAssignmentValue.json.


@message(key=22, kind="coordinator-key", versions="0", flexible="none")
class StreamsGroupCurrentMemberAssignmentKey:
    """By group and member."""

    group_id: str = string()
    member_id: str = string()


@structure(kafka_name="TaskIds")
class CurrentTaskIds:
    """Tasks of one subtopology, by partition; of active ones also the epochs in which they were
    assigned.
    """

    subtopology_id: str = string()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, tag=0, tagged="0+", nullable="0+")


@message(key=22, kind="coordinator-value", versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue:
    """The member epoch, the previous one (in case a response got lost), and its tasks."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    active_tasks: list[CurrentTaskIds] = array(CurrentTaskIds)
    standby_tasks: list[CurrentTaskIds] = array(CurrentTaskIds)
    warmup_tasks: list[CurrentTaskIds] = array(CurrentTaskIds)
    active_tasks_pending_revocation: list[CurrentTaskIds] = array(CurrentTaskIds)
    standby_tasks_pending_revocation: list[CurrentTaskIds] = array(CurrentTaskIds)
    warmup_tasks_pending_revocation: list[CurrentTaskIds] = array(CurrentTaskIds)


# --------------------------------------------------------------------------------------------------
# StreamsGroupTopology (23): the topology of a streams group, as its members sent it.
#
# The coordinator creates the internal topics and assigns tasks from it.
# Source: KIP-1071; StreamsGroupTopologyKey.json, StreamsGroupTopologyValue.json.


@message(key=23, kind="coordinator-key", versions="0", flexible="none")
class StreamsGroupTopologyKey:
    """By group."""

    group_id: str = string()


@structure
class TopicConfig:
    """A topic's setting."""

    key: str = string()
    value: str = string()


@structure
class TopicInfo:
    """An internal topic as the application requires it; 0 leaves the number of partitions open."""

    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[TopicConfig] = array(TopicConfig)


@structure
class CopartitionGroup:
    """Source topics that must be copartitioned, as indexes into those of the subtopology."""

    source_topics: list[int] = array(int16)
    source_topic_regex: list[int] = array(int16)
    repartition_source_topics: list[int] = array(int16)


@structure
class Subtopology:
    """A connected part of the topology: its source, sink, repartition and changelog topics."""

    subtopology_id: str = string()
    source_topics: list[str] = array(string)
    source_topic_regex: list[str] = array(string)
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_sink_topics: list[str] = array(string)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)


@message(key=23, kind="coordinator-value", versions="0", flexible="0+")
class StreamsGroupTopologyValue:
    """Subtopologies at a topology epoch."""

    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)
