"""DeleteTopics (20): delete topics and all their records; a KRaft broker forwards the request to
the active controller in an Envelope.

Source: KIP-4, KIP-322 (v3: deletion is switched off), KIP-599 (v5: quotas), KIP-516 (v6: topic
ids), KIP-896; DeleteTopicsRequest.json, DeleteTopicsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, message, string, structure, uuid

ERRORS = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,  # the topic will be gone all the same, only later than timeout_ms
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    # topic ids, in a ZooKeeper-mode cluster with inter.broker.protocol.version 2.7
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.NOT_CONTROLLER,
    # a topic twice, or by name and id at once; below v3 also TOPIC_DELETION_DISABLED
    ErrorCode.INVALID_REQUEST,
    ErrorCode.TOPIC_DELETION_DISABLED,  # since v3
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,  # since v5
    ErrorCode.UNKNOWN_TOPIC_ID,
)


@structure
class DeleteTopicState:
    """A topic by its name, or with name null by its id."""

    name: str | None = string(since=6, nullable="6+", default=None)
    topic_id: bytes = uuid(since=6)


@message(key=20, versions="0-6", flexible="4+")
class DeleteTopicsRequest:
    """A list of names up to v5; since v6 each topic by name or by id."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6)
    topic_names: list[str] = array(string, until=5, ignorable=True)
    timeout_ms: int = int32()


@structure
class DeletableTopicResult:
    """The result of one topic.

    A client that may not see the topic gets a null name, or a zero id.
    """

    name: str | None = string(nullable="6+")
    topic_id: bytes = uuid(since=6, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(since=5, nullable="5+", default=None, ignorable=True)


@message(key=20, versions="0-6", flexible="4+")
class DeleteTopicsResponse:
    """One result per topic, in no particular order."""

    throttle_time_ms: int = int32(since=1, ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
