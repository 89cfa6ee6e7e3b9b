"""The target assignment of a streams group: what each member should run, and its records.

Source: org.apache.kafka.coordinator.group.streams.TargetAssignmentBuilder of 4.2, 4.3 and 4.4,
UpdatedMembersAndTargetAssignmentView.
"""

from collections.abc import Mapping

from kraftsim.groups.rules_assignors import java_order, timeline_order
from kraftsim.groups.rules_consumer_group_records import Change
from kraftsim.groups.rules_streams_assignor import StickyTraits, TaskMember, assign_tasks
from kraftsim.groups.rules_streams_group import (
    NO_TASK_OFFSETS,
    NO_TASK_SET,
    StreamsGroup,
    StreamsMember,
    TaskSet,
)
from kraftsim.groups.rules_streams_records import target_change, target_epoch_change
from kraftsim.groups.rules_streams_topology import ConfiguredTopology
from kraftsim.groups.rules_timing import GroupMoment, GroupSettings, java_hash

Heir = tuple[StreamsMember, str | None]
"""A member as it will be, and the static member that it replaces."""


def assign_targets(
    group: StreamsGroup,
    configured: ConfiguredTopology,
    settings: GroupSettings,
    *,
    epoch: int,
    standby_replicas: int,
    now: GroupMoment,
    heir: Heir | None = None,
) -> tuple[dict[str, TaskSet], list[Change]]:
    """Assign tasks to all members, none if topics are missing; return them, and the changes."""
    members, targets = dict(group.members), dict(group.targets)
    if heir is not None and heir[1] is not None:
        del members[heir[1]]
        target = targets.pop(heir[1], None)
        if target is not None:
            targets[heir[0].member_id] = target
    order = timeline_order(list(members), java_hash)
    if heir is not None:
        if heir[0].member_id not in members:
            order.append(heir[0].member_id)
        members[heir[0].member_id] = heir[0]
    found: dict[str, TaskSet] = {}
    if configured.is_ready:
        assigned = assign_tasks(
            [_task_member(group, members[each], targets, settings) for each in order],
            configured.tasks(),
            standby_replicas,
            StickyTraits(
                skips_processes_with_task=settings.streams_have_roles
                or not settings.streams_assigns_at_intervals,
                computes_if_absent=settings.streams_have_roles,
            ),
        )
        found = {each: TaskSet(row.active, row.standby) for each, row in assigned.items()}
    changes: list[Change] = []
    for member_id in java_order(order, java_hash):
        tasks = found.setdefault(member_id, NO_TASK_SET)
        if targets.get(member_id) != tasks:
            changes.append(target_change(group.group_id, member_id, tasks))
    assigned_ms = now.wall_ms if settings.streams_assigns_at_intervals else 0
    changes.append(target_epoch_change(group.group_id, epoch, assigned_ms))
    return found, changes


def _task_member(
    group: StreamsGroup,
    member: StreamsMember,
    targets: Mapping[str, TaskSet],
    settings: GroupSettings,
) -> TaskMember:
    """Return a member as input of the assignor: since 4.4 with what it runs, before with its former
    target.
    """
    if not settings.streams_have_roles:
        target = targets.get(member.member_id, NO_TASK_SET)
        return TaskMember(
            member_id=member.member_id,
            process_id=member.process_id,
            active=target.active,
            standby=target.standby,
        )
    return TaskMember(
        member_id=member.member_id,
        process_id=member.process_id,
        active=member.assigned.active_tasks(),
        standby=member.assigned.standby,
        offsets=group.task_offsets.get(member.member_id, NO_TASK_OFFSETS).offsets,
    )
