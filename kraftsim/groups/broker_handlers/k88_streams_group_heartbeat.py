"""StreamsGroupHeartbeat: a member of a streams group joins, heartbeats, reports its tasks, or
leaves; the coordinator creates the internal topics that its topology lacks.

Source: kafka.server.KafkaApis.handleStreamsGroupHeartbeat,
org.apache.kafka.coordinator.group.GroupCoordinatorService.streamsGroupHeartbeat, KIP-1071; texts
verified against Apache Kafka 4.2.2, 4.3.1 and 4.4.0.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from kraftsim.core.decision import Refusal
from kraftsim.groups.group_coordinator import GroupsBroker
from kraftsim.groups.rules_group_configs import STREAMS_HEARTBEAT
from kraftsim.groups.rules_streams_assignor import Task, Tasks
from kraftsim.groups.rules_streams_group import (
    LEFT_FOR_A_WHILE,
    EndpointRow,
    TaskSet,
    TopicTasks,
)
from kraftsim.groups.rules_streams_groups import HEARTBEAT_MS, StreamsGroups
from kraftsim.groups.rules_streams_heartbeats import StreamsAnswer, StreamsHeartbeat
from kraftsim.groups.rules_timing import GroupAnswer
from kraftsim.metadata.rules_topic_names import is_internal, why_name_is_invalid
from kraftsim.releases.traits import STREAMS_ROLES
from kraftsim.server.call import Allows, Answer, Call, Deferred, Handler
from kraftsim.server.forwarding import ForwardingNode
from kraftsim.server.serving_broker import ReleaseBroker
from protocol.api_keys import ApiKey
from protocol.coordinator import streams_groups as records
from protocol.errors import ErrorCode
from protocol.messages.k88_streams_group_heartbeat import (
    JOINING_MEMBER_EPOCH,
    Endpoint,
    EndpointToPartitions,
    Status,
    StatusCode,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TaskOffset,
    TopicInfo,
    TopicPartition,
    Topology,
)

UNCHANGED_TIMEOUT: Final = -1
SHOWN_ERRORS: Final = 3
TASK_FIELDS: Final = ("active_tasks", "standby_tasks", "warmup_tasks")
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
        return _answer(StreamsAnswer(error=refusal.error, why=refusal.message))
    led = broker.groups.coordinated(request.group_id)
    if isinstance(led, ErrorCode):
        return refuse(call, led)
    asked = _input(request, call)
    later = Deferred()

    def on_answer(answer: GroupAnswer) -> None:
        assert isinstance(answer, StreamsAnswer), "the answer to a heartbeat"
        response = _answer(answer)
        if answer.missing:
            _create_missing(broker, call, answer, response, allows)
        later.complete(response)

    led.ask(
        lambda waiter, now: led.shard.ask_type(
            StreamsGroups, lambda groups: groups.heartbeat(waiter, asked, now)
        ),
        on_answer,
    )
    return later


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
    if epoch == LEFT_FOR_A_WHILE and request.instance_id is None:
        return _invalid("InstanceId can't be null.")
    if epoch < LEFT_FOR_A_WHILE:
        return _invalid(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    return None


def _refuse_join(request: StreamsGroupHeartbeatRequest) -> Refusal | None:
    if request.rebalance_timeout_ms == UNCHANGED_TIMEOUT:
        return _invalid("RebalanceTimeoutMs must be provided in first request.")
    for name, rows in zip(TASK_NAMES, _task_rows(request), strict=True):
        if rows:
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


# --------------------------------------------------------------------------------------------------
# Request and response


def _input(request: StreamsGroupHeartbeatRequest, call: Call) -> StreamsHeartbeat:
    active, standby, warmup = _task_rows(request)
    owned = None
    if active is not None and standby is not None and warmup is not None:
        owned = TaskSet(_tasks(active), _tasks(standby), _tasks(warmup))
    endpoint, tags = request.user_endpoint, request.client_tags
    return StreamsHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topology=None if request.topology is None else _topology(request.topology),
        owned=owned,
        process_id=request.process_id,
        user_endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
        client_tags=None if tags is None else {row.key: row.value for row in tags},
        task_offsets=_offsets(request.task_offsets),
        task_end_offsets=_offsets(request.task_end_offsets),
        shuts_down=request.shutdown_application,
        endpoint_epoch=request.endpoint_information_epoch,
        client_id=call.client_id or "",
        client_host=f"/{call.host}",
        api_version=call.api_version,
    )


def _topology(topology: Topology) -> records.StreamsGroupTopologyValue:
    """Return the topology as its record has it."""

    def topics(rows: Iterable[TopicInfo]) -> list[records.TopicInfo]:
        return [
            records.TopicInfo(
                name=row.name,
                partitions=row.partitions,
                replication_factor=row.replication_factor,
                topic_configs=[
                    records.TopicConfig(key=each.key, value=each.value)
                    for each in row.topic_configs
                ],
            )
            for row in rows
        ]

    return records.StreamsGroupTopologyValue(
        epoch=topology.epoch,
        subtopologies=[
            records.Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=list(each.source_topics),
                source_topic_regex=list(each.source_topic_regex),
                state_changelog_topics=topics(each.state_changelog_topics),
                repartition_sink_topics=list(each.repartition_sink_topics),
                repartition_source_topics=topics(each.repartition_source_topics),
                copartition_groups=[
                    records.CopartitionGroup(
                        source_topics=list(group.source_topics),
                        source_topic_regex=list(group.source_topic_regex),
                        repartition_source_topics=list(group.repartition_source_topics),
                    )
                    for group in each.copartition_groups
                ],
            )
            for each in topology.subtopologies
        ],
    )


def _tasks(rows: Iterable[TaskIds]) -> Tasks:
    found: dict[str, set[int]] = {}
    for row in rows:
        found.setdefault(row.subtopology_id, set()).update(row.partitions)
    return {name: tuple(sorted(numbers)) for name, numbers in found.items()}


def _offsets(rows: Sequence[TaskOffset] | None) -> tuple[tuple[Task, int], ...] | None:
    if rows is None:
        return None
    return tuple(((row.subtopology_id, row.partition), row.offset) for row in rows)


def _answer(answer: StreamsAnswer) -> StreamsGroupHeartbeatResponse:
    tasks, endpoints = answer.tasks, answer.endpoints
    return StreamsGroupHeartbeatResponse(
        error_code=answer.error,
        error_message=answer.why,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        task_offset_interval_ms=answer.task_offset_interval_ms,
        acceptable_recovery_lag=answer.acceptable_recovery_lag,
        status=[Status(status_code=code, status_detail=detail) for code, detail in answer.statuses],
        active_tasks=None if tasks is None else _rows(tasks.active),
        standby_tasks=None if tasks is None else _rows(tasks.standby),
        warmup_tasks=None if tasks is None else _rows(tasks.warmup),
        endpoint_information_epoch=answer.endpoint_epoch,
        partitions_by_user_endpoint=None
        if endpoints is None
        else [_endpoint_row(row) for row in endpoints],
    )


def _rows(tasks: Tasks) -> list[TaskIds]:
    return [
        TaskIds(subtopology_id=name, partitions=list(numbers)) for name, numbers in tasks.items()
    ]


def _endpoint_row(row: EndpointRow) -> EndpointToPartitions:
    host, port = row.endpoint
    return EndpointToPartitions(
        user_endpoint=Endpoint(host=host, port=port),
        active_partitions=_topic_rows(row.active),
        standby_partitions=_topic_rows(row.standby),
    )


def _topic_rows(rows: TopicTasks) -> list[TopicPartition]:
    return [TopicPartition(topic=topic, partitions=list(numbers)) for topic, numbers in rows]


# --------------------------------------------------------------------------------------------------
# Internal topics


def _create_missing(
    broker: StreamsBroker,
    call: Call,
    answer: StreamsAnswer,
    response: StreamsGroupHeartbeatResponse,
    allows: Allows,
) -> None:
    """Create missing internal topics, and add to the status why they are not created."""
    request = call.body
    assert isinstance(request, StreamsGroupHeartbeatRequest), "dispatch decodes by API key"
    names = [topic.name for topic in answer.missing]
    refused = [name for name in names if not allows(name)]
    if refused:
        _add_detail(response, f"Unauthorized to CREATE on topics {', '.join(refused)}.")
        return
    groups = broker.groups
    interval_ms = groups.configs.integer(request.group_id, STREAMS_HEARTBEAT, HEARTBEAT_MS)
    groups.streams_topics.create(broker.forwarding, call, answer.missing, 2 * interval_ms)
    errors = groups.streams_topics.errors(names)
    if errors:
        _add_detail(response, f"Creation failed: {_shown(errors)}.")


def _shown(errors: Mapping[str, str]) -> str:
    rows = [f"{name} ({why})" for name, why in errors.items()]
    more = len(rows) - SHOWN_ERRORS
    return ", ".join(rows[:SHOWN_ERRORS]) + (f" and {more} more" if more > 0 else "")


def _add_detail(response: StreamsGroupHeartbeatResponse, detail: str) -> None:
    for status in response.status or ():
        if status.status_code == StatusCode.MISSING_INTERNAL_TOPICS:
            status.status_detail += f"; {detail}"


def refuse(call: Call, error: ErrorCode) -> StreamsGroupHeartbeatResponse:
    """Return a response with an error."""
    return StreamsGroupHeartbeatResponse(error_code=error)


HANDLER = Handler(
    key=ApiKey.STREAMS_GROUP_HEARTBEAT,
    handle=handle,
    refuse=refuse,
    handle_allowed=handle_allowed,
)
