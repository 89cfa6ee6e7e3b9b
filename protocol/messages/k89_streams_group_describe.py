"""StreamsGroupDescribe (89): topology, members and tasks of Kafka Streams applications, from their
coordinator.

For administration tools; read-only.
Source: KIP-1071 (v0), KIP-1331 and KIP-1357 (v1: topology description, assignor);
StreamsGroupDescribeRequest.json, StreamsGroupDescribeResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import (
    array,
    boolean,
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

OPERATIONS_NOT_ASKED_FOR = -(2**31)

ERRORS = (
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)


@message(key=89, versions="0-1", flexible="0+")
class StreamsGroupDescribeRequest:
    """Groups by name; each has its own result."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()
    include_topology_description: bool = boolean(since=1)


@structure
class KeyValue:
    """A name and its value."""

    key: str = string()
    value: str = string()


@structure
class TopicInfo:
    """An internal topic as the application requires it; 0 leaves the number of partitions open."""

    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


@structure
class Subtopology:
    """A part of the topology, with regular expressions and partition counts resolved."""

    subtopology_id: str = string()
    source_topics: list[str] = array(string)
    repartition_sink_topics: list[str] = array(string)
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)


@structure
class Topology:
    """The topology in use; no subtopologies if topics are missing or wrongly partitioned."""

    epoch: int = int32()
    subtopologies: list[Subtopology] | None = array(Subtopology, nullable="0+", default=None)


@structure
class Endpoint:
    """The member's endpoint for interactive queries."""

    host: str = string()
    port: int = uint16()


@structure
class TaskOffset:
    """The sum of the changelog offsets of a task."""

    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


@structure
class TaskIds:
    """Tasks of one subtopology, by partition."""

    subtopology_id: str = string()
    partitions: list[int] = array(int32)


@structure
class Assignment:
    """The tasks of a member."""

    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


@structure
class Member:
    """A member: its current and its target tasks."""

    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = struct(Endpoint, nullable="0+", default=None)
    client_tags: list[KeyValue] = array(KeyValue)
    task_offsets: list[TaskOffset] = array(TaskOffset)
    task_end_offsets: list[TaskOffset] = array(TaskOffset)
    assignment: Assignment = struct(Assignment)
    target_assignment: Assignment = struct(Assignment)
    is_classic: bool = boolean()


@structure
class TopologyDescriptionNode:
    """A processing node: 1 source, 2 processor, 3 sink; fields of other types are empty."""

    name: str = string(since=1)
    node_type: int = int8(since=1)
    source_topics: list[str] = array(string, since=1)
    sink_topic: str | None = string(since=1, nullable="1+", default=None)
    stores: list[str] = array(string, since=1)
    successors: list[str] = array(string, since=1)


@structure
class TopologyDescriptionSubtopology:
    """The nodes of a subtopology; predecessors follow from the successors."""

    subtopology_id: str = string(since=1)
    nodes: list[TopologyDescriptionNode] = array(TopologyDescriptionNode, since=1)


@structure
class TopologyDescriptionGlobalStore:
    """A global store, which every member has completely, and its source."""

    source: TopologyDescriptionNode = struct(TopologyDescriptionNode, since=1)
    processor: TopologyDescriptionNode = struct(TopologyDescriptionNode, since=1)


@structure
class TopologyDescription:
    """The complete topology."""

    subtopologies: list[TopologyDescriptionSubtopology] = array(
        TopologyDescriptionSubtopology, since=1
    )
    global_stores: list[TopologyDescriptionGlobalStore] = array(
        TopologyDescriptionGlobalStore, since=1
    )


@structure
class DescribedGroup:
    """A group; topology_description is set if and only if its status is 3 (1: not stored, 2: not
    readable).
    """

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    topology: Topology | None = struct(Topology, nullable="0+", default=None)
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-2147483648)
    topology_description: TopologyDescription | None = struct(
        TopologyDescription, since=1, nullable="1+", default=None
    )
    topology_description_status: int = int8(since=1)
    assignor_name: str | None = string(since=1, nullable="1+", default=None, ignorable=True)


@message(key=89, versions="0-1", flexible="0+")
class StreamsGroupDescribeResponse:
    """One entry per requested group."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
