"""StreamsGroupTargetAssignmentMember (21): the target tasks of a member of a streams group.

The member reaches them over several heartbeats.
Source: KIP-1071; StreamsGroupTargetAssignmentMemberKey.json,
StreamsGroupTargetAssignmentMemberValue.json.
"""

from protocol.schema import array, int32, message, string, structure


@message(key=21, kind="coordinator-key", versions="0", flexible="none")
class StreamsGroupTargetAssignmentMemberKey:
    """By group and member."""

    group_id: str = string()
    member_id: str = string()


@structure
class TaskIds:
    """Tasks of one subtopology, by partition."""

    subtopology_id: str = string()
    partitions: list[int] = array(int32)


@message(key=21, kind="coordinator-value", versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    """All tasks of the target assignment."""

    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)
