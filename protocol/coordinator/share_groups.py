"""Records of the group coordinator for share groups; the state of their partitions is in
`share_states`.

Source: KIP-932; GroupCoordinatorRecordHelpers.
"""

from protocol.schema import array, int8, int32, int64, message, string, structure, uuid

# --------------------------------------------------------------------------------------------------
# ShareGroupMemberMetadata (10): the metadata that a member of a share group sent.
#
# There are no static members and no rebalance timeout.
# Source: KIP-932; ShareGroupMemberMetadataKey.json, ShareGroupMemberMetadataValue.json.


@message(key=10, kind="coordinator-key", versions="0", flexible="none")
class ShareGroupMemberMetadataKey:
    """By group and member."""

    group_id: str = string()
    member_id: str = string()


@message(key=10, kind="coordinator-value", versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    """Its subscription."""

    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)


# --------------------------------------------------------------------------------------------------
# ShareGroupMetadata (11): a share group exists, at this group epoch.
#
# The epoch grows whenever members or topics change.
# Source: KIP-932, KIP-1101; ShareGroupMetadataKey.json, ShareGroupMetadataValue.json.


@message(key=11, kind="coordinator-key", versions="0", flexible="none")
class ShareGroupMetadataKey:
    """By group."""

    group_id: str = string()


@message(key=11, kind="coordinator-value", versions="0", flexible="0+")
class ShareGroupMetadataValue:
    """With the hash of the subscribed topics."""

    epoch: int = int32()
    metadata_hash: int = int64()


# --------------------------------------------------------------------------------------------------
# ShareGroupTargetAssignmentMetadata (12): the group epoch for which a share group's assignment was
# made.
#
# If it is lower than the group epoch, the assignment is not computed yet.
# Source: KIP-932, KIP-1263; ShareGroupTargetAssignmentMetadataKey.json,
# ShareGroupTargetAssignmentMetadataValue.json.


@message(key=12, kind="coordinator-key", versions="0", flexible="none")
class ShareGroupTargetAssignmentMetadataKey:
    """By group."""

    group_id: str = string()


@message(key=12, kind="coordinator-value", versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    """Written after the members' records of the same assignment."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, tagged="0+", ignorable=True)


# --------------------------------------------------------------------------------------------------
# ShareGroupTargetAssignmentMember (13): the target assignment of a member of a share group.
#
# Several members may have the same partition.
# Source: KIP-932; ShareGroupTargetAssignmentMemberKey.json,
# ShareGroupTargetAssignmentMemberValue.json.


@message(key=13, kind="coordinator-key", versions="0", flexible="none")
class ShareGroupTargetAssignmentMemberKey:
    """By group and member."""

    group_id: str = string()
    member_id: str = string()


@structure
class TopicPartition:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@message(key=13, kind="coordinator-value", versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    """All partitions of the target assignment."""

    topic_partitions: list[TopicPartition] = array(TopicPartition)


# --------------------------------------------------------------------------------------------------
# ShareGroupCurrentMemberAssignment (14): the current assignment of a member of a share group.
#
# There is no revocation, so it follows the target at once.
# Source: KIP-932; ShareGroupCurrentMemberAssignmentKey.json,
# ShareGroupCurrentMemberAssignmentValue.json.


@message(key=14, kind="coordinator-key", versions="0", flexible="none")
class ShareGroupCurrentMemberAssignmentKey:
    """By group and member."""

    group_id: str = string()
    member_id: str = string()


@structure
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@message(key=14, kind="coordinator-value", versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    """The member epoch, the previous one (in case a response got lost), and its partitions."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)


# --------------------------------------------------------------------------------------------------
# ShareGroupStatePartitionMetadata (15): the partitions for which the share coordinator keeps, or
# will keep, the state of a share group.
#
# The group coordinator sends initialize and delete requests (APIs 83 and 86), and records here
# their progress.
# Source: KIP-932; ShareGroupStatePartitionMetadataKey.json,
# ShareGroupStatePartitionMetadataValue.json.


@message(key=15, kind="coordinator-key", versions="0", flexible="none")
class ShareGroupStatePartitionMetadataKey:
    """By group."""

    group_id: str = string()


@structure
class TopicPartitionsInfo:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


@structure
class TopicInfo:
    """A topic."""

    topic_id: bytes = uuid()
    topic_name: str = string()


@message(key=15, kind="coordinator-value", versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    """Partitions whose state is being initialized, initialized, or being deleted."""

    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)
