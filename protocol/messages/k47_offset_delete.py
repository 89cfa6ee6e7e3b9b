"""OffsetDelete (47): delete the committed offsets of a group for partitions that it no longer
reads.

Source: KIP-496; OffsetDeleteRequest.json, OffsetDeleteResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, message, string, structure

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.NON_EMPTY_GROUP,  # its members are not consumers, so their subscriptions are unknown
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
)


@structure
class OffsetDeleteRequestPartition:
    """A partition whose offset is deleted."""

    partition_index: int = int32()


@structure
class OffsetDeleteRequestTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


@message(key=47, versions="0")
class OffsetDeleteRequest:
    """Sent to the group coordinator. One of the few requests that never became flexible."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


@structure
class OffsetDeleteResponsePartition:
    """Whether the offset is deleted; a missing one is no error."""

    partition_index: int = int32()
    error_code: int = int16()


@structure
class OffsetDeleteResponseTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@message(key=47, versions="0")
class OffsetDeleteResponse:
    """With an error of the group there are no topics."""

    error_code: int = int16()
    throttle_time_ms: int = int32(ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
