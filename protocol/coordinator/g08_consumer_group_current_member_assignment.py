"""ConsumerGroupCurrentMemberAssignment (8): the current assignment of a member of a consumer group,
and the partitions that it must revoke first.

A partition is assigned to the next member only after the previous one has revoked it.
Source: KIP-848, KIP-1251; ConsumerGroupCurrentMemberAssignmentKey.json,
ConsumerGroupCurrentMemberAssignmentValue.json.
"""

from protocol.schema import array, int8, int32, message, string, structure, uuid


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
