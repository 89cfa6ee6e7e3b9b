"""ShareGroupTargetAssignmentMember (13): the target assignment of a member of a share group.

Several members may have the same partition.
Source: KIP-932; ShareGroupTargetAssignmentMemberKey.json,
ShareGroupTargetAssignmentMemberValue.json.
"""

from protocol.schema import array, int32, message, string, structure, uuid


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
