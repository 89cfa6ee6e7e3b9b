"""StreamsGroupCurrentMemberAssignment (22): the current tasks of a member of a streams group, and
those that it must revoke first.

A task is assigned to the next member only after the previous one has revoked it.
Source: KIP-1071; StreamsGroupCurrentMemberAssignmentKey.json,
StreamsGroupCurrentMemberAssignmentValue.json.
"""

from protocol.schema import array, int8, int32, message, string, structure


@message(key=22, kind="coordinator-key", versions="0", flexible="none")
class StreamsGroupCurrentMemberAssignmentKey:
    """By group and member."""

    group_id: str = string()
    member_id: str = string()


@structure
class TaskIds:
    """Tasks of one subtopology, by partition; of active ones also the epochs in which they were
    assigned.
    """

    subtopology_id: str = string()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, tag=0, tagged="0+", nullable="0+")


@message(key=22, kind="coordinator-value", versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue:
    """The member epoch, the previous one (in case a response got lost), and its tasks."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)
    active_tasks_pending_revocation: list[TaskIds] = array(TaskIds)
    standby_tasks_pending_revocation: list[TaskIds] = array(TaskIds)
    warmup_tasks_pending_revocation: list[TaskIds] = array(TaskIds)
