"""The records of streams groups: one function per change, and their replay.

`replay_change` is the same function after an append and on loading the log.
Source: org.apache.kafka.coordinator.group.streams.StreamsCoordinatorRecordHelpers,
GroupMetadataManager.replay.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kraftsim.groups.rules_consumer_group_records import Change
from kraftsim.groups.rules_streams_assignor import Tasks
from kraftsim.groups.rules_streams_group import (
    EpochTasks,
    StreamsGroup,
    StreamsMember,
    TaskSet,
)
from protocol.coordinator.streams_groups import (
    CurrentTaskIds,
    Endpoint,
    KeyValue,
    LastAssignmentConfig,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
    TaskIds,
)
from protocol.schema import Message

REMOVED_EPOCH: Final = -1
KEYS: Final = (
    StreamsGroupMetadataKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupTopologyKey,
)


def epoch_change(
    group: StreamsGroup,
    epoch: int,
    metadata_hash: int,
    validated_epoch: int,
    configs: Iterable[tuple[str, str]],
) -> Change:
    """The group epoch is bumped."""
    value = StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_epoch,
        last_assignment_configs=[
            LastAssignmentConfig(key=key, value=value) for key, value in configs
        ],
        stored_description_topology_epoch=group.stored_description_epoch,
        failed_description_topology_epoch=group.failed_description_epoch,
    )
    return StreamsGroupMetadataKey(group_id=group.group_id), value


def topology_change(group_id: str, topology: StreamsGroupTopologyValue) -> Change:
    """The first member brings the topology."""
    return StreamsGroupTopologyKey(group_id=group_id), topology


def member_change(group_id: str, member: StreamsMember) -> Change:
    """A member joined, or its metadata changed. Tags are sorted."""
    endpoint = member.user_endpoint
    value = StreamsGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint[0], port=endpoint[1]),
        client_tags=[
            KeyValue(key=key, value=member.client_tags[key]) for key in sorted(member.client_tags)
        ],
    )
    return StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value


def target_change(group_id: str, member_id: str, tasks: TaskSet) -> Change:
    """The target tasks of a member changed."""
    value = StreamsGroupTargetAssignmentMemberValue(
        active_tasks=_rows(tasks.active),
        standby_tasks=_rows(tasks.standby),
        warmup_tasks=_rows(tasks.warmup),
    )
    return StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value


def target_epoch_change(group_id: str, epoch: int, assigned_ms: int) -> Change:
    """The epoch of the target assignment; `assigned_ms` 0 is not written."""
    value = StreamsGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=assigned_ms
    )
    return StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), value


def current_change(group_id: str, member: StreamsMember) -> Change:
    """The tasks or the epoch of a member changed."""
    assigned, revoked = member.assigned, member.revoked
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=int(member.state),
        active_tasks=_epoch_rows(assigned.active),
        standby_tasks=_current_rows(assigned.standby),
        warmup_tasks=_current_rows(assigned.warmup),
        active_tasks_pending_revocation=_epoch_rows(revoked.active),
        standby_tasks_pending_revocation=_current_rows(revoked.standby),
        warmup_tasks_pending_revocation=_current_rows(revoked.warmup),
    )
    key = StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return key, value


def member_tombstones(group_id: str, member_id: str) -> list[Change]:
    """A member is removed: its tasks, its target and its metadata."""
    return [
        (StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        (StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        (StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def replay_change(
    key: Message,
    value: Message | None,
    *,
    find: Callable[[str], StreamsGroup | None],
    make: Callable[[str], StreamsGroup],
    drop: Callable[[StreamsGroup], None],
) -> None:
    """Apply one record; tombstones of what is unknown have no effect, nor has that of a group with
    members.
    """
    assert isinstance(key, KEYS), "a key of a streams group"
    group_id = key.group_id
    group = find(group_id) if value is None else make(group_id)
    if group is None:
        return
    match key, value:
        case StreamsGroupMetadataKey(), None:
            if group.is_empty:
                drop(group)
        case StreamsGroupMetadataKey(), StreamsGroupMetadataValue():
            group.replay_metadata(value)
        case StreamsGroupTopologyKey(), _:
            assert value is None or isinstance(value, StreamsGroupTopologyValue), "by its key"
            group.topology = value
        case StreamsGroupMemberMetadataKey(), None:
            group.replay_gone(key.member_id)
        case StreamsGroupMemberMetadataKey(), StreamsGroupMemberMetadataValue():
            group.replay_member(key.member_id, value)
        case StreamsGroupTargetAssignmentMetadataKey(), None:
            group.replay_target_epoch(REMOVED_EPOCH, 0)
        case (
            StreamsGroupTargetAssignmentMetadataKey(),
            StreamsGroupTargetAssignmentMetadataValue(),
        ):
            group.replay_target_epoch(value.assignment_epoch, value.assignment_timestamp)
        case StreamsGroupTargetAssignmentMemberKey(), None:
            group.replay_target(key.member_id, None)
        case StreamsGroupTargetAssignmentMemberKey(), StreamsGroupTargetAssignmentMemberValue():
            tasks = TaskSet(
                _tasks(value.active_tasks), _tasks(value.standby_tasks), _tasks(value.warmup_tasks)
            )
            group.replay_target(key.member_id, tasks)
        case StreamsGroupCurrentMemberAssignmentKey(), _:
            assert value is None or isinstance(value, StreamsGroupCurrentMemberAssignmentValue), (
                "by its key"
            )
            group.replay_current(key.member_id, value)


def _rows(tasks: Tasks) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=sorted(tasks[name])) for name in sorted(tasks)]


def _current_rows(tasks: Tasks) -> list[CurrentTaskIds]:
    return [
        CurrentTaskIds(subtopology_id=name, partitions=sorted(tasks[name]))
        for name in sorted(tasks)
    ]


def _epoch_rows(tasks: EpochTasks) -> list[CurrentTaskIds]:
    return [
        CurrentTaskIds(
            subtopology_id=name,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[number] for number in sorted(epochs)],
        )
        for name, epochs in _by_name(tasks)
    ]


def _by_name(tasks: EpochTasks) -> list[tuple[str, Mapping[int, int]]]:
    return [(name, tasks[name]) for name in sorted(tasks)]


def _tasks(rows: Iterable[TaskIds]) -> Tasks:
    return {row.subtopology_id: tuple(sorted({*row.partitions})) for row in rows}
