"""StreamsGroupHeartbeat: a member of a streams group joins, heartbeats, reports its tasks, or
leaves; the coordinator creates the internal topics that its topology lacks.

Source: kafka.server.KafkaApis.handleStreamsGroupHeartbeat,
org.apache.kafka.coordinator.group.GroupCoordinatorService.streamsGroupHeartbeat, KIP-1071; texts
verified against Apache Kafka 4.2.2, 4.3.1 and 4.4.0.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from kraftsim.core.decision import Refusal
from kraftsim.groups.group_coordinator import GroupsBroker
from kraftsim.metadata.rules_topic_names import is_internal, why_name_is_invalid
from kraftsim.releases.traits import STREAMS_ROLES
from kraftsim.server.call import Allows, Answer, Call, Deferred, Handler
from kraftsim.server.forwarding import ForwardingNode
from kraftsim.server.serving_broker import ReleaseBroker
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k88_streams_group_heartbeat import (
    JOINING_MEMBER_EPOCH,
    LEAVING_STATIC_MEMBER_EPOCH,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
)

UNCHANGED_TIMEOUT: Final = -1
TASK_NAMES: Final = ("ActiveTasks", "StandbyTasks", "WarmupTasks")
Rows = Sequence[TaskIds] | None


class StreamsBroker(GroupsBroker, ForwardingNode, ReleaseBroker, Protocol):
    """A broker that coordinates streams groups."""


def handle(broker: StreamsBroker, call: Call) -> Answer | Deferred:
    """Respond with the member epoch, the tasks if they have changed, and the statuses;
    UNSUPPORTED_VERSION if streams groups are disabled.
    """
    return handle_allowed(broker, call, lambda topic: True)


def handle_allowed(broker: StreamsBroker, call: Call, allows: Allows) -> Answer | Deferred:
    """The same; `allows` returns whether the client may create a topic."""
    request = call.body
    assert isinstance(request, StreamsGroupHeartbeatRequest), "dispatch decodes by API key"
    if not broker.groups.serves_streams:
        return refuse(call, ErrorCode.UNSUPPORTED_VERSION)
    has_roles = broker.parts.release.has(STREAMS_ROLES)
    refusal = refuse_names(request) or refuse_request(request, has_roles=has_roles)
    if refusal is not None:
        return StreamsGroupHeartbeatResponse(
            error_code=refusal.error, error_message=refusal.message
        )
    led = broker.groups.coordinated(request.group_id)
    if isinstance(led, ErrorCode):
        return refuse(call, led)
    # imported when the first member comes: most nodes have none
    from kraftsim.groups.streams_heartbeats import serve_heartbeat

    return serve_heartbeat(broker, led, call, allows)


def named_topics(request: StreamsGroupHeartbeatRequest) -> list[str]:
    """Return every topic of the topology of a request, in Kafka's order."""
    subtopologies = () if request.topology is None else request.topology.subtopologies
    return list(
        dict.fromkeys(
            name
            for each in subtopologies
            for name in (
                *each.source_topics,
                *each.repartition_sink_topics,
                *(topic.name for topic in each.repartition_source_topics),
                *(topic.name for topic in each.state_changelog_topics),
            )
        )
    )


def refuse_names(request: StreamsGroupHeartbeatRequest) -> Refusal | None:
    """Return STREAMS_INVALID_TOPOLOGY if the topology has topics of Kafka's own, or invalid
    names.
    """
    names = named_topics(request)
    internal = [name for name in names if is_internal(name)]
    if internal:
        why = (
            f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is "
            "prohibited."
        )
        return Refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, why)
    invalid = [name for name in names if why_name_is_invalid(name) is not None]
    if invalid:
        why = f"Topic names {','.join(invalid)} are not valid topic names."
        return Refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, why)
    return None


def refuse_request(request: StreamsGroupHeartbeatRequest, *, has_roles: bool) -> Refusal | None:
    """Return the error of a request that is invalid for any group: INVALID_REQUEST,
    STREAMS_INVALID_TOPOLOGY. Up to 4.3 there are no static members, task offsets and warm-ups.
    """
    return (
        _refuse_unsupported(request, has_roles=has_roles)
        or _refuse_empty(request)
        or _refuse_epoch(request)
        or _refuse_tasks(request)
    )


def _refuse_unsupported(
    request: StreamsGroupHeartbeatRequest, *, has_roles: bool
) -> Refusal | None:
    if not has_roles:
        for is_used, what in (
            (request.instance_id is not None, "Static membership is not yet"),
            (request.task_offsets is not None, "TaskOffsets are not"),
            (request.task_end_offsets is not None, "TaskEndOffsets are not"),
            (bool(request.warmup_tasks), "WarmupTasks are not"),
        ):
            if is_used:
                tail = "" if what.endswith("yet") else " yet"
                return _invalid(f"{what} supported{tail}.")
    topology = request.topology
    if topology is not None and any(each.source_topic_regex for each in topology.subtopologies):
        return _invalid("Regular expressions for source topics are not supported yet.")
    return None


def _refuse_empty(request: StreamsGroupHeartbeatRequest) -> Refusal | None:
    for name, text in (
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and not text.strip():
            return _invalid(f"{name} can't be empty.")
    return None


def _refuse_epoch(request: StreamsGroupHeartbeatRequest) -> Refusal | None:
    epoch = request.member_epoch
    if epoch == JOINING_MEMBER_EPOCH:
        return _refuse_join(request)
    if epoch == LEAVING_STATIC_MEMBER_EPOCH and request.instance_id is None:
        return _invalid("InstanceId can't be null.")
    if epoch < LEAVING_STATIC_MEMBER_EPOCH:
        return _invalid(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    return None


def _refuse_join(request: StreamsGroupHeartbeatRequest) -> Refusal | None:
    if request.rebalance_timeout_ms == UNCHANGED_TIMEOUT:
        return _invalid("RebalanceTimeoutMs must be provided in first request.")
    for name, rows in zip(TASK_NAMES, _task_rows(request), strict=True):
        if rows is None or rows:
            return _invalid(f"{name} must be empty when (re-)joining.")
    if request.topology is None:
        return _invalid("Topology must be non-null when (re-)joining.")
    for each in request.topology.subtopologies:
        for topic in each.state_changelog_topics:
            if topic.partitions != 0:
                why = (
                    f"Changelog topic {topic.name} must have an undefined partition count, but it "
                    f"is set to {topic.partitions}."
                )
                return Refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, why)
    return None


def _refuse_tasks(request: StreamsGroupHeartbeatRequest) -> Refusal | None:
    rows = _task_rows(request)
    if any(each is not None for each in rows) and any(each is None for each in rows):
        return _invalid("If one task-type is non-null, all must be non-null.")
    if request.member_epoch != JOINING_MEMBER_EPOCH and request.topology is not None:
        return _invalid("Topology can only be provided when (re-)joining.")
    return None


def _task_rows(request: StreamsGroupHeartbeatRequest) -> tuple[Rows, Rows, Rows]:
    return request.active_tasks, request.standby_tasks, request.warmup_tasks


def _invalid(why: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, why)


def refuse(call: Call, error: ErrorCode) -> StreamsGroupHeartbeatResponse:
    """Return a response with an error."""
    return StreamsGroupHeartbeatResponse(error_code=error)


HANDLER = Handler(
    key=ApiKey.STREAMS_GROUP_HEARTBEAT,
    handle=handle,
    refuse=refuse,
    handle_allowed=handle_allowed,
)
