"""CreateTopics (19): create topics; a KRaft broker forwards the request to the active controller in
an Envelope.

Source: KIP-4, KIP-464 (v4: -1 means the broker's default), KIP-525 (v5: the created settings),
KIP-516 (v7: topic ids); CreateTopicsRequest.json, CreateTopicsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, int8, int16, int32, message, string, structure, uuid

BROKER_DEFAULT = (
    -1
)  # for the partition count and the replication factor; also with a manual assignment

ERRORS = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.INVALID_PARTITIONS,
    ErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ErrorCode.INVALID_CONFIG,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.POLICY_VIOLATION,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
)


@structure
class CreatableReplicaAssignment:
    """The replicas of one partition, the preferred leader first."""

    partition_index: int = int32()
    broker_ids: list[int] = array(int32)


@structure
class CreatableTopicConfig:
    """A configuration that differs from the broker's."""

    name: str = string()
    value: str | None = string(nullable="0+")


@structure
class CreatableTopic:
    """A topic to create: by numbers, or by assignments with both numbers at BROKER_DEFAULT."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@message(key=19, versions="0-7", flexible="5+")
class CreateTopicsRequest:
    """v1 adds validate_only; since v6 the error may be THROTTLING_QUOTA_EXCEEDED."""

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000, kafka_name="timeoutMs")
    validate_only: bool = boolean(since=1, kafka_name="validateOnly")


@structure
class CreatableTopicConfigs:
    """A configuration of the new topic and the source of its value."""

    name: str = string(since=5)
    value: str | None = string(since=5, nullable="5+")
    read_only: bool = boolean(since=5)
    config_source: int = int8(since=5, default=-1, ignorable=True)
    is_sensitive: bool = boolean(since=5)


@structure
class CreatableTopicResult:
    """The result of one topic. v5 adds its settings, v7 its id; configs are null if the client may
    not see them.
    """

    name: str = string()
    topic_id: bytes = uuid(since=7, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(since=1, nullable="0+", ignorable=True)
    topic_config_error_code: int = int16(tag=0, tagged="5+", ignorable=True)
    num_partitions: int = int32(since=5, default=-1, ignorable=True)
    replication_factor: int = int16(since=5, default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, since=5, nullable="5+", ignorable=True
    )


@message(key=19, versions="0-7", flexible="5+")
class CreateTopicsResponse:
    """One result per requested topic."""

    throttle_time_ms: int = int32(since=2, ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
