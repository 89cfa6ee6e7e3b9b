"""Heartbeats of streams groups on their way to the rules and back: requests become inputs, answers
responses, and missing internal topics are created.

Source: kafka.server.KafkaApis.handleStreamsGroupHeartbeat.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from kraftsim.groups.coordinated_partition import CoordinatedPartition
from kraftsim.groups.group_coordinator import GroupsBroker
from kraftsim.groups.rules_group_configs import STREAMS_HEARTBEAT
from kraftsim.groups.rules_streams_assignor import Task, Tasks
from kraftsim.groups.rules_streams_group import EndpointRow, TaskSet, TopicTasks
from kraftsim.groups.rules_streams_groups import HEARTBEAT_MS, StreamsGroups
from kraftsim.groups.rules_streams_heartbeats import StreamsAnswer, StreamsHeartbeat
from kraftsim.groups.rules_timing import GroupAnswer
from kraftsim.server.call import Allows, Call, Deferred
from kraftsim.server.forwarding import ForwardingNode
from protocol.coordinator import streams_groups as records
from protocol.messages.k88_streams_group_heartbeat import (
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

SHOWN_ERRORS: Final = 3


class CreatingCoordinator(GroupsBroker, ForwardingNode, Protocol):
    """A broker that coordinates groups, and forwards the creation of their topics."""


def serve_heartbeat(
    broker: CreatingCoordinator, led: CoordinatedPartition, call: Call, allows: Allows
) -> Deferred:
    """Pass a heartbeat to the rules; `allows` returns whether the client may create a topic."""
    request = call.body
    assert isinstance(request, StreamsGroupHeartbeatRequest), "dispatch decodes by API key"
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


def _input(request: StreamsGroupHeartbeatRequest, call: Call) -> StreamsHeartbeat:
    active, standby, warmup = request.active_tasks, request.standby_tasks, request.warmup_tasks
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
    broker: CreatingCoordinator,
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
