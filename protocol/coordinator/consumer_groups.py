"""Records of groups of consumers: of the classic protocol (2), of the consumer protocol, and the
offsets that groups commit, whatever their protocol.
"""

from protocol.schema import (
    array,
    byte_string,
    int8,
    int32,
    int64,
    message,
    string,
    struct,
    structure,
    uuid,
)

# --------------------------------------------------------------------------------------------------
# Records of groups of consumers: of the classic protocol (2), and of the consumer protocol
#
# Source: KIP-848; GroupCoordinatorRecordHelpers.

# --------------------------------------------------------------------------------------------------
# GroupMetadata (2): a group of the classic protocol after a rebalance: its generation, members and
# their assignments.
#
# A null value is a tombstone.
# Source: KIP-62 (v1), KIP-211 (v2), KIP-345 (v3), KIP-915 (v4); GroupCoordinatorRecordHelpers,
# GroupMetadataKey.json, GroupMetadataValue.json.


@message(key=2, kind="coordinator-key", versions="0", flexible="none")
class GroupMetadataKey:
    """By group."""

    group: str = string()


@structure
class MemberMetadata:
    """A member; subscription and assignment are opaque to the coordinator (see
    consumer_protocol).
    """

    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable="3+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32(since=1, default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = byte_string()
    assignment: bytes = byte_string()


@message(key=2, kind="coordinator-value", versions="0-4", flexible="4+")
class GroupMetadataValue:
    """The group after a rebalance; without members it is empty, and its offsets may expire."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64(since=2, default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)


# --------------------------------------------------------------------------------------------------
# ConsumerGroupMetadata (3): a group of the new consumer protocol exists, at this group epoch.
#
# The epoch grows whenever members or topics change; the assignment follows it.
# Source: KIP-848, KIP-1101; ConsumerGroupMetadataKey.json, ConsumerGroupMetadataValue.json.


@message(key=3, kind="coordinator-key", versions="0", flexible="none")
class ConsumerGroupMetadataKey:
    """By group."""

    group_id: str = string()


@message(key=3, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    """The hash of the subscribed topics came with 4.1 and replaces record 4."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0, tagged="0+")


# --------------------------------------------------------------------------------------------------
# ConsumerGroupPartitionMetadata (4): the topics that a consumer group had subscribed to, when its
# epoch was decided (up to 4.0).
#
# 4.1 and later only write tombstones, since a hash in record 3 says as much.
# Source: KIP-848, KIP-1101; ConsumerGroupPartitionMetadataKey.json,
# ConsumerGroupPartitionMetadataValue.json.


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


# --------------------------------------------------------------------------------------------------
# ConsumerGroupMemberMetadata (5): the metadata that a member of a consumer group sent.
#
# A member with the classic protocol in such a group has its classic metadata, too.
# Source: KIP-848; ConsumerGroupMemberMetadataKey.json, ConsumerGroupMemberMetadataValue.json.


@message(key=5, kind="coordinator-key", versions="0", flexible="none")
class ConsumerGroupMemberMetadataKey:
    """By group and member."""

    group_id: str = string()
    member_id: str = string()


@structure
class ClassicProtocol:
    """A client-side assignor that the member supports, with its metadata."""

    name: str = string()
    metadata: bytes = byte_string()


@structure
class ClassicMemberMetadata:
    """The metadata of a member with the classic protocol."""

    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


@message(key=5, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    """Its subscription and assignor."""

    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, tag=0, tagged="0+", nullable="0+"
    )


# --------------------------------------------------------------------------------------------------
# ConsumerGroupTargetAssignmentMetadata (6): the group epoch for which a consumer group's target
# assignment was made.
#
# If it is lower than the group epoch, the assignment is not computed yet.
# Source: KIP-848, KIP-1263; ConsumerGroupTargetAssignmentMetadataKey.json,
# ConsumerGroupTargetAssignmentMetadataValue.json.


@message(key=6, kind="coordinator-key", versions="0", flexible="none")
class ConsumerGroupTargetAssignmentMetadataKey:
    """By group."""

    group_id: str = string()


@message(key=6, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    """Written after the members' records of the same assignment."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, tagged="0+", ignorable=True)


# --------------------------------------------------------------------------------------------------
# ConsumerGroupTargetAssignmentMember (7): the target assignment of a member of a consumer group.
#
# The member reaches it over several heartbeats.
# Source: KIP-848; ConsumerGroupTargetAssignmentMemberKey.json,
# ConsumerGroupTargetAssignmentMemberValue.json.


@message(key=7, kind="coordinator-key", versions="0", flexible="none")
class ConsumerGroupTargetAssignmentMemberKey:
    """By group and member."""

    group_id: str = string()
    member_id: str = string()


@structure
class TopicPartition:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@message(key=7, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    """All partitions of the target assignment."""

    topic_partitions: list[TopicPartition] = array(TopicPartition)


# --------------------------------------------------------------------------------------------------
# ConsumerGroupCurrentMemberAssignment (8): the current assignment of a member of a consumer group,
# and the partitions that it must revoke first.
#
# A partition is assigned to the next member only after the previous one has revoked it.
# Source: KIP-848, KIP-1251; ConsumerGroupCurrentMemberAssignmentKey.json,
# ConsumerGroupCurrentMemberAssignmentValue.json.


@message(key=8, kind="coordinator-key", versions="0", flexible="none")
class ConsumerGroupCurrentMemberAssignmentKey:
    """By group and member."""

    group_id: str = string()
    member_id: str = string()


@structure
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, tag=0, tagged="0+", nullable="0+")


@message(key=8, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    """The member epoch, the previous one (in case a response got lost), and its partitions."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


# --------------------------------------------------------------------------------------------------
# ConsumerGroupRegularExpression (16): the topics that a regular expression of a consumer group's
# member matched when it was last resolved.
#
# The coordinator resolves it (4.0), from time to time and when the topics change.
# Source: KIP-848; ConsumerGroupRegularExpressionKey.json, ConsumerGroupRegularExpressionValue.json.


@message(key=16, kind="coordinator-key", versions="0", flexible="none")
class ConsumerGroupRegularExpressionKey:
    """By group and expression."""

    group_id: str = string()
    regular_expression: str = string()


@message(key=16, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    """The topics, and the metadata version at which they were resolved."""

    topics: list[str] = array(string)
    version: int = int64()
    timestamp: int = int64()


# --------------------------------------------------------------------------------------------------
# Records of the offsets that groups commit, whatever their protocol
#
# Source: KIP-98, KIP-211; OffsetMetadataManager.

# --------------------------------------------------------------------------------------------------
# LegacyOffsetCommit (0): an offset as brokers before 0.9 wrote it; still supported for reading.
#
# Up to 3.9 it was version 0 of OffsetCommitKey.
# Source: KAFKA-18301; OffsetMetadataManager, LegacyOffsetCommitKey.json,
# LegacyOffsetCommitValue.json.


@message(key=0, kind="coordinator-key", versions="0", flexible="none")
class LegacyOffsetCommitKey:
    """By group, topic and partition."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


@message(key=0, kind="coordinator-value", versions="0", flexible="none")
class LegacyOffsetCommitValue:
    """The next offset that the group reads."""

    offset: int = int64()
    metadata: str = string()
    commit_timestamp: int = int64()


# --------------------------------------------------------------------------------------------------
# OffsetCommit (1): an offset that a group committed; a null value is a tombstone.
#
# A pending one, inside a transaction, is the same record in a transactional batch: it applies after
# its commit marker.
# Source: KIP-98, KIP-211, KIP-320, KIP-915; OffsetMetadataManager, OffsetCommitKey.json,
# OffsetCommitValue.json.


@message(key=1, kind="coordinator-key", versions="0", flexible="none")
class OffsetCommitKey:
    """By group, topic and partition."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


@message(key=1, kind="coordinator-value", versions="0-4", flexible="4+")
class OffsetCommitValue:
    """The next offset that the group reads. v1 has its own expiry timestamp, v3 a leader epoch, v4
    tagged fields.
    """

    offset: int = int64()
    leader_epoch: int = int32(since=3, default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(since=1, until=1, default=-1, ignorable=True)
    topic_id: bytes = uuid(tag=0, tagged="4+", ignorable=True)
