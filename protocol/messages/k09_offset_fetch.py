"""OffsetFetch (9): the committed offsets of a group.

A partition without a committed offset is no error: its offset is -1. With require_stable an error
is returned while a transaction that commits the offset is open, so that two members never read the
same records in two transactions.
Source: KIP-88 (v2: all topics), KIP-320 (v5), KIP-447 (v7: stable offsets), KIP-709 (v8: several
groups), KIP-848 (v9: member epochs, v10: topic ids), KIP-896; OffsetFetchRequest.json,
OffsetFetchResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, int16, int32, int64, message, string, structure, uuid

NO_OFFSET = -1
NO_LEADER_EPOCH = -1
NO_MEMBER_EPOCH = -1

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # v0 only, which reads from ZooKeeper
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,  # also in place of a time-out, which consumers would not retry
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.UNKNOWN_MEMBER_ID,  # since v9
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,  # since v7, for one partition: retry later
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.STALE_MEMBER_EPOCH,  # since v9
)


@structure
class OffsetFetchRequestTopic:
    """Partitions of one topic, up to v7."""

    name: str = string(until=7)
    partition_indexes: list[int] = array(int32, until=7)


@structure
class OffsetFetchRequestTopics:
    """Partitions of one topic, since v8; identified by its name up to v9 and by its id since
    v10.
    """

    name: str = string(since=8, until=9, ignorable=True)
    topic_id: bytes = uuid(since=10, ignorable=True)
    partition_indexes: list[int] = array(int32, since=8)


@structure
class OffsetFetchRequestGroup:
    """One group; topics null: all committed offsets.

    Member and epoch are checked only in groups of the consumer protocol (KIP-848).
    """

    group_id: str = string(since=8)
    member_id: str | None = string(since=9, nullable="9+", default=None, ignorable=True)
    member_epoch: int = int32(since=9, default=NO_MEMBER_EPOCH, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(
        OffsetFetchRequestTopics, since=8, nullable="8+"
    )


@message(key=9, versions="0-10", flexible="6+")
class OffsetFetchRequest:
    """v0 reads from ZooKeeper, v1 from the coordinator; since v2 null topics request all, since v8
    several groups can be requested.

    require_stable (v7) rejects offsets that an open transaction may still replace, instead of
    returning the previous ones.
    """

    group_id: str = string(until=7)
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, until=7, nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8)
    require_stable: bool = boolean(since=7)


@structure
class OffsetFetchResponsePartition:
    """The next offset to read, or NO_OFFSET, up to v7."""

    partition_index: int = int32(until=7)
    committed_offset: int = int64(until=7)
    committed_leader_epoch: int = int32(since=5, until=7, default=NO_LEADER_EPOCH, ignorable=True)
    metadata: str | None = string(until=7, nullable="0-7")
    error_code: int = int16(until=7)


@structure
class OffsetFetchResponseTopic:
    """Partitions of one topic, up to v7."""

    name: str = string(until=7)
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, until=7)


@structure
class OffsetFetchResponsePartitions:
    """The next offset to read, or NO_OFFSET, since v8."""

    partition_index: int = int32(since=8)
    committed_offset: int = int64(since=8)
    committed_leader_epoch: int = int32(since=8, default=NO_LEADER_EPOCH, ignorable=True)
    metadata: str | None = string(since=8, nullable="8+")
    error_code: int = int16(since=8)


@structure
class OffsetFetchResponseTopics:
    """Partitions of one topic, since v8."""

    name: str = string(since=8, until=9, ignorable=True)
    topic_id: bytes = uuid(since=10, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, since=8)


@structure
class OffsetFetchResponseGroup:
    """The offsets of one group; its error_code is for all of them."""

    group_id: str = string(since=8)
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, since=8)
    error_code: int = int16(since=8)


@message(key=9, versions="0-10", flexible="6+")
class OffsetFetchResponse:
    """v0 and v1 repeat an error of the group in every partition, v2 has a top-level field for
    it.
    """

    throttle_time_ms: int = int32(since=3, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=7)
    error_code: int = int16(since=2, until=7, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8)
