"""ShareGroupCurrentMemberAssignment (14): the current assignment of a member of a share group.

There is no revocation, so it follows the target at once.
Source: KIP-932; ShareGroupCurrentMemberAssignmentKey.json,
ShareGroupCurrentMemberAssignmentValue.json.
"""

from protocol.schema import array, int8, int32, message, string, structure, uuid


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
