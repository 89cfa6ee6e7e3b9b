"""The heartbeat of a streams group as the rules see it, its response, and the refusals that depend
on the group's members alone.

Source: org.apache.kafka.coordinator.group.GroupMetadataManager.{
throwIfStreamsGroupMemberEpochIsInvalid, throwIfInstanceIdIsFenced}.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from kraftsim.core.decision import Refusal
from kraftsim.groups.rules_streams_assignor import Task
from kraftsim.groups.rules_streams_group import EndpointRow, StreamsGroup, StreamsMember, TaskSet
from kraftsim.groups.rules_streams_topology import InternalTopic
from kraftsim.groups.rules_timing import OtherAnswer
from protocol.coordinator.streams_groups import StreamsGroupTopologyValue
from protocol.errors import ErrorCode
from protocol.messages.k88_streams_group_heartbeat import StatusCode

JOINS = 0


class StreamsHeartbeat(Struct, frozen=True, kw_only=True):
    """One heartbeat. A field that is None, or a timeout of -1, is unchanged."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topology: StreamsGroupTopologyValue | None
    owned: TaskSet | None
    process_id: str | None
    user_endpoint: tuple[str, int] | None
    client_tags: Mapping[str, str] | None
    task_offsets: Sequence[tuple[Task, int]] | None
    task_end_offsets: Sequence[tuple[Task, int]] | None
    shuts_down: bool
    endpoint_epoch: int
    client_id: str
    client_host: str
    api_version: int


class StreamsAnswer(OtherAnswer, frozen=True, kw_only=True):
    """The heartbeat response of a streams group.

    `tasks` and `endpoints` are None where they are unchanged; `missing` are the internal topics to
    create.
    """

    error: ErrorCode = ErrorCode.NONE
    why: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    task_offset_interval_ms: int = 0
    acceptable_recovery_lag: int = -1
    statuses: tuple[tuple[StatusCode, str], ...] = ()
    tasks: TaskSet | None = None
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointRow, ...] | None = None
    missing: tuple[InternalTopic, ...] = ()


def not_streams(group_id: str) -> Refusal:
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")


def unknown_member(group: StreamsGroup, member_id: str) -> Refusal:
    why = f"Member {member_id} is not a member of group {group.group_id}."
    return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, why)


def unknown_instance(instance_id: str) -> Refusal:
    return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")


def refuse_instance(
    member: StreamsMember | None, member_id: str, instance_id: str
) -> Refusal | None:
    if member is None or member.member_id == member_id:
        return None
    return Refusal(
        ErrorCode.FENCED_INSTANCE_ID,
        f"Static member {member_id} with instance id {instance_id} was fenced by member "
        f"{member.member_id}.",
    )


def refuse_epoch(member: StreamsMember, asked: StreamsHeartbeat) -> Refusal | None:
    """Accept the previous epoch if the last response was lost and the member owns nothing
    unassigned; a rejoining member has epoch 0.
    """
    epoch = asked.member_epoch
    if epoch in (member.member_epoch, JOINS):
        return None
    comparison = "greater" if epoch > member.member_epoch else "smaller"
    is_previous = epoch < member.member_epoch and epoch == member.previous_member_epoch
    if is_previous and _has_all(member, asked.owned):
        return None
    return Refusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {comparison} member epoch ({epoch}) than the one known "
        f"by the group coordinator ({member.member_epoch}). The member must abandon all its "
        "partitions and rejoin.",
    )


def _has_all(member: StreamsMember, owned: TaskSet | None) -> bool:
    """Return whether a member is assigned all that it owns; False if it reports nothing."""
    if owned is None:
        return False
    assigned = member.assigned
    return all(
        name in there and frozenset(numbers) <= frozenset(there[name])
        for tasks, there in (
            (owned.active, assigned.active),
            (owned.standby, assigned.standby),
            (owned.warmup, assigned.warmup),
        )
        for name, numbers in tasks.items()
    )
