"""StreamsGroupHeartbeat (88): keeps the session of a Kafka Streams member alive, and returns its
tasks.

The broker knows the topology and assigns tasks (active, standby, warm-up), which up to 4.0 a
client-side assignor did.
Source: KIP-1071 (v0), KIP-1331 (v1: topology description); StreamsGroupHeartbeatRequest.json,
StreamsGroupHeartbeatResponse.json.
"""

from enum import IntEnum

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

JOINING_MEMBER_EPOCH = 0
LEAVING_MEMBER_EPOCH = -1
LEAVING_STATIC_MEMBER_EPOCH = -2  # will rejoin under its instance id

ERRORS = (
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,  # internal topics may not be created
    ErrorCode.STREAMS_INVALID_TOPOLOGY,
    ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH,
    ErrorCode.STREAMS_TOPOLOGY_FENCED,
)


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


@structure
class Topology:
    """The application's topology; sent when joining."""

    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)


@structure
class TaskIds:
    """Tasks of one subtopology, by partition."""

    subtopology_id: str = string()
    partitions: list[int] = array(int32)


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


@message(key=88, versions="0-1", flexible="0+")
class StreamsGroupHeartbeatRequest:
    """Join with member epoch 0, leave with -1, leave temporarily with -2; unchanged fields are
    null.
    """

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    endpoint_information_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    topology: Topology | None = struct(Topology, nullable="0+", default=None)
    active_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    process_id: str | None = string(nullable="0+", default=None)
    user_endpoint: Endpoint | None = struct(Endpoint, nullable="0+", default=None)
    client_tags: list[KeyValue] | None = array(KeyValue, nullable="0+", default=None)
    task_offsets: list[TaskOffset] | None = array(TaskOffset, nullable="0+", default=None)
    task_end_offsets: list[TaskOffset] | None = array(TaskOffset, nullable="0+", default=None)
    shutdown_application: bool = boolean()


class StatusCode(IntEnum):
    """A status for the member besides its tasks."""

    STALE_TOPOLOGY = 0  # the group is at a later topology epoch
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3  # the broker tries to create them
    SHUTDOWN_APPLICATION = 4  # a member asked all to stop
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6  # for standby tasks in other racks (v1)


@structure
class Status:
    """An error of the group or its topology, or a request to its members (see StatusCode)."""

    status_code: int = int8()
    status_detail: str = string()


@structure
class TopicPartition:
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


@structure
class EndpointToPartitions:
    """The endpoint for the partitions of a member."""

    user_endpoint: Endpoint = struct(Endpoint)
    active_partitions: list[TopicPartition] = array(TopicPartition)
    standby_partitions: list[TopicPartition] = array(TopicPartition)


@message(key=88, versions="0-1", flexible="0+")
class StreamsGroupHeartbeatResponse:
    """The epoch for the next heartbeat; tasks only if they changed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str = string()
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    acceptable_recovery_lag_legacy: int = int32(until=0)
    task_offset_interval_ms: int = int32()
    acceptable_recovery_lag: int = int64(since=1, default=-1, ignorable=True)
    status: list[Status] | None = array(Status, nullable="0+")
    active_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    topology_description_required: bool = boolean(since=1)
    endpoint_information_epoch: int = int32()
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(
        EndpointToPartitions, nullable="0+", default=None
    )
