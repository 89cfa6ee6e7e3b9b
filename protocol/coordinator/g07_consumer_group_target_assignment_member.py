"""ConsumerGroupTargetAssignmentMember (7): the target assignment of a member of a consumer group.

The member reaches it over several heartbeats.
Source: KIP-848; ConsumerGroupTargetAssignmentMemberKey.json,
ConsumerGroupTargetAssignmentMemberValue.json.
"""

from protocol.schema import array, int32, message, string, structure, uuid


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
