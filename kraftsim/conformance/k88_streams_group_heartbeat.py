"""StreamsGroupHeartbeat (88): requests that are refused, membership, topologies, tasks.

Source: KIP-1071; org.apache.kafka.coordinator.group.{GroupCoordinatorService,
GroupMetadataManager}; verified against Apache Kafka 4.2.2, 4.3.1 and 4.4.0.
"""

from kraftsim.conformance.expect import expect, expect_equal, expect_error, settled
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.streams_group_client import (
    StreamsGroupClient,
    StreamsGroupMember,
    rows_of,
    subtopology,
)
from kraftsim.conformance.target import Target
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.k88_streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    StatusCode,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)

REQUIREMENTS = Requirements("streams-groups", 1, "Heartbeats of streams group members")
SINCE = "4.2"
SET = 0
"""The operation of IncrementalAlterConfigs."""
SERVICE = "GroupCoordinatorService.throwIfStreamsGroupHeartbeatRequestIsInvalid"
MANAGER = "GroupMetadataManager.streamsGroupHeartbeat"
NO_TASKS: dict[str, tuple[int, ...]] = {}


def statuses(answer: StreamsGroupHeartbeatResponse) -> list[StatusCode]:
    """Return the status codes of a response."""
    return [StatusCode(row.status_code) for row in answer.status or ()]


def lone(group: StreamsGroupClient, partitions: int = 2, **fields: object) -> StreamsGroupMember:
    """Return a member of a group whose topology reads a new topic and keeps no state."""
    topic = group.target.topic(partitions=partitions)
    return group.member("a", subtopology(0, [topic.name]), **fields)


@REQUIREMENTS.that(
    1, "an invalid first heartbeat is INVALID_REQUEST, with the reason", source=SERVICE, since=SINCE
)
def invalid_joins(target: Target) -> None:
    with StreamsGroupClient(target) as group:
        member = lone(group, 1)
        one = [TaskIds(subtopology_id="0", partitions=[0])]
        regex = subtopology(0, [])
        regex.source_topic_regex = ["a.*"]
        for changed, why in (
            ({"member_id": " "}, "MemberId can't be empty."),
            ({"group_id": ""}, "GroupId can't be empty."),
            ({"rack_id": ""}, "RackId can't be empty."),
            (
                {"rebalance_timeout_ms": -1},
                "RebalanceTimeoutMs must be provided in first request.",
            ),
            ({"active_tasks": one}, "ActiveTasks must be empty when (re-)joining."),
            ({"standby_tasks": one}, "StandbyTasks must be empty when (re-)joining."),
            ({"topology": None}, "Topology must be non-null when (re-)joining."),
            ({"standby_tasks": None}, "StandbyTasks must be empty when (re-)joining."),
            ({"warmup_tasks": None}, "WarmupTasks must be empty when (re-)joining."),
            (
                {"topology": Topology(epoch=1, subtopologies=[regex])},
                "Regular expressions for source topics are not supported yet.",
            ),
        ):
            answer = group.ask(**member.joining(**changed))
            expect_error(answer.error_code, ErrorCode.INVALID_REQUEST, str(changed))
            expect_equal(answer.error_message, why, str(changed))
            expect_equal(answer.status, [], "the statuses of an error")


@REQUIREMENTS.that(
    2, "an invalid later heartbeat is INVALID_REQUEST, with the reason", source=SERVICE, since=SINCE
)
def invalid_heartbeats(target: Target) -> None:
    with StreamsGroupClient(target) as group:
        member = lone(group, 1)
        for changed, why in (
            ({"member_epoch": -2}, "InstanceId can't be null."),
            (
                {"member_epoch": -3},
                "MemberEpoch is -3, but must be greater than or equal to -2.",
            ),
            (
                {"member_epoch": 5, "topology": member.topology},
                "Topology can only be provided when (re-)joining.",
            ),
            (
                {"member_epoch": 5, "active_tasks": []},
                "If one task-type is non-null, all must be non-null.",
            ),
        ):
            answer = group.ask(member_id="a", **changed)
            expect_error(answer.error_code, ErrorCode.INVALID_REQUEST, str(changed))
            expect_equal(answer.error_message, why, str(changed))


@REQUIREMENTS.that(
    3,
    "a topology with Kafka's own topics, invalid names or counted changelogs is "
    "STREAMS_INVALID_TOPOLOGY",
    source="KafkaApis.handleStreamsGroupHeartbeat",
    since=SINCE,
)
def invalid_topologies(target: Target) -> None:
    with StreamsGroupClient(target) as group:
        member = lone(group, 1)
        counted = subtopology(0, member.topology.subtopologies[0].source_topics, stores=["c"])
        counted.state_changelog_topics[0].partitions = 3
        for part, why in (
            (
                subtopology(0, ["__consumer_offsets", "x"]),
                "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is "
                "prohibited.",
            ),
            (subtopology(0, ["a b", "c/d"]), "Topic names a b,c/d are not valid topic names."),
            (
                counted,
                "Changelog topic c must have an undefined partition count, but it is set to 3.",
            ),
        ):
            topology = Topology(epoch=1, subtopologies=[part])
            answer = group.ask(**member.joining(topology=topology))
            expect_error(answer.error_code, ErrorCode.STREAMS_INVALID_TOPOLOGY, why)
            expect_equal(answer.error_message, why, "the reason")


@REQUIREMENTS.that(
    4,
    "the first member gets an epoch and no tasks, and ASSIGNMENT_DELAYED until the delay is over; "
    "then it gets all tasks",
    source=MANAGER,
    since=SINCE,
)
def first_member(target: Target) -> None:
    with StreamsGroupClient(target) as group:
        member = lone(group, 3)
        answer = member.join()
        expect_equal(statuses(answer), [StatusCode.ASSIGNMENT_DELAYED], "the status")
        expect_equal(
            (answer.status or [])[0].status_detail,
            "Assignment delayed due to the configured initial rebalance delay.",
            "its detail",
        )
        expect_equal(
            (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms),
            ("a", 1, 5000),
            "id, epoch and interval",
        )
        expect_equal(
            (answer.active_tasks, answer.standby_tasks, answer.warmup_tasks), ([], [], []), "tasks"
        )
        expect_equal(member.beat().active_tasks, None, "unchanged tasks")
        group.settle(member, wanted=[{"0": (0, 1, 2)}])
        expect_equal(member.epoch, 2, "the epoch of the assignment")
        expect_equal(member.beat().status, [], "the statuses of a group with its tasks")


@REQUIREMENTS.that(
    5, "tasks move only after their member has revoked them", source=MANAGER, since=SINCE
)
def moving_tasks(target: Target) -> None:
    with StreamsGroupClient(target) as group:
        first = lone(group, 4)
        second = group.member("b", *first.topology.subtopologies)
        first.join()
        group.settle(first, wanted=[{"0": (0, 1, 2, 3)}])
        settled(second.join, lambda answer: not answer.status, "an assignment")
        expect_equal(second.active, NO_TASKS, "tasks that the first member has")
        kept = settled(first.ask, lambda answer: answer.active_tasks is not None, "a revocation")
        expect_equal(kept.member_epoch, first.epoch, "the epoch of a member that has to revoke")
        expect_equal(second.beat().active_tasks, None, "tasks that are not revoked yet")
        answer = first.ask(active_tasks=rows_of(first.active), standby_tasks=[], warmup_tasks=[])
        expect_equal(answer.member_epoch, first.epoch, "the epoch while it still has them")
        first.take(kept)
        group.settle_evenly(first, second, count=4)
        expect(first.epoch == second.epoch, "both have the epoch of the assignment")


@REQUIREMENTS.that(
    6,
    "a wrong member epoch is FENCED_MEMBER_EPOCH; the previous one is accepted from a member that "
    "owns nothing else",
    source=MANAGER,
    since=SINCE,
)
def fenced_epochs(target: Target) -> None:
    with StreamsGroupClient(target) as group:
        member = lone(group)
        member.join()
        group.settle(member, wanted=[{"0": (0, 1)}])
        epoch = member.epoch
        for asked, comparison in ((epoch + 1, "greater"), (epoch - 1, "smaller")):
            answer = group.ask(member_id="a", member_epoch=asked)
            expect_error(answer.error_code, ErrorCode.FENCED_MEMBER_EPOCH, f"epoch {asked}")
            expect_equal(
                answer.error_message,
                f"The streams group member has a {comparison} member epoch ({asked}) than the one "
                f"known by the group coordinator ({epoch}). The member must abandon all its "
                "partitions and rejoin.",
                "the reason",
            )
        answer = group.ask(
            member_id="a",
            member_epoch=epoch - 1,
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
        )
        expect_error(answer.error_code, ErrorCode.NONE, "the previous epoch")
        expect_equal(answer.member_epoch, epoch, "the present epoch")


@REQUIREMENTS.that(
    7,
    "an unknown group is GROUP_ID_NOT_FOUND, an unknown member UNKNOWN_MEMBER_ID",
    source=MANAGER,
    since=SINCE,
)
def unknown_members(target: Target) -> None:
    with StreamsGroupClient(target) as group:
        for epoch, why in (
            (1, f"Streams group {group.group_id} not found."),
            (-1, f"Group {group.group_id} not found."),
        ):
            answer = group.ask(member_id="a", member_epoch=epoch)
            expect_error(answer.error_code, ErrorCode.GROUP_ID_NOT_FOUND, f"epoch {epoch}")
            expect_equal(answer.error_message, why, "the reason")
        lone(group, 1).join()
        for epoch in (1, -1):
            answer = group.ask(member_id="b", member_epoch=epoch)
            expect_error(answer.error_code, ErrorCode.UNKNOWN_MEMBER_ID, f"epoch {epoch}")
            why = f"Member b is not a member of group {group.group_id}."
            expect_equal(answer.error_message, why, "the reason")


@REQUIREMENTS.that(
    8, "a member that leaves gives its tasks to the others", source=MANAGER, since=SINCE
)
def leaving(target: Target) -> None:
    with StreamsGroupClient(target) as group:
        first = lone(group)
        second = group.member("b", *first.topology.subtopologies)
        first.join()
        second.join()
        group.settle_evenly(first, second, count=2)
        answer = first.leave()
        expect_equal(
            (answer.error_code, answer.member_id, answer.member_epoch, answer.status),
            (0, "a", -1, []),
            "the response",
        )
        group.settle(second, wanted=[{"0": (0, 1)}])
        answer = first.ask()
        expect_error(answer.error_code, ErrorCode.UNKNOWN_MEMBER_ID, "after it has left")


@REQUIREMENTS.that(
    9,
    "missing source topics are a status, until the topics exist",
    source="InternalTopicManager.configureTopics",
    since=SINCE,
)
def missing_sources(target: Target) -> None:
    names = sorted(target.fresh_name("source") for _ in range(4))
    with StreamsGroupClient(target) as group:
        member = group.member("a", subtopology(0, names))
        answer = member.join()
        expect(StatusCode.MISSING_SOURCE_TOPICS in statuses(answer), "MISSING_SOURCE_TOPICS")
        detail = (answer.status or [])[-1].status_detail
        shown = ", ".join(names[:3])
        expect_equal(
            detail, f"Source topics {shown} and 1 additional topics are missing.", "its detail"
        )
        for name in names:
            target.topic(name=name)
        group.settle(member, wanted=[{"0": (0,)}])
        expect_equal(member.beat().status, [], "the statuses")


@REQUIREMENTS.that(
    10,
    "missing internal topics are a status; the coordinator creates them with the partitions of "
    "the sources",
    source="AutoTopicCreationManager.createStreamsInternalTopics",
    since=SINCE,
)
def internal_topics(target: Target) -> None:
    topic = target.topic(partitions=3)
    store, repartition = target.fresh_name("changelog"), target.fresh_name("repartition")
    with StreamsGroupClient(target) as group:
        member = group.member(
            "a",
            subtopology(0, [topic.name], sinks=[repartition]),
            subtopology(1, [], repartitions=[TopicInfo(name=repartition)], stores=[store]),
        )
        answer = member.join()
        expect(StatusCode.MISSING_INTERNAL_TOPICS in statuses(answer), "MISSING_INTERNAL_TOPICS")
        detail = (answer.status or [])[-1].status_detail
        expect(detail.startswith("Internal topics are missing: "), "its detail")
        group.settle(member, wanted=[{"0": (0, 1, 2), "1": (0, 1, 2)}])
        for name in (store, repartition):
            expect_equal(target.led_topic(name, 3).name, name, "an internal topic")


@REQUIREMENTS.that(
    11,
    "topics that do not fit are INCORRECTLY_PARTITIONED_TOPICS",
    source="CopartitionedTopicsEnforcer",
    since=SINCE,
)
def wrong_partitions(target: Target) -> None:
    two, three = target.topic(partitions=2), target.topic(partitions=3)
    names = sorted((two.name, three.name))
    counts = {two.name: 2, three.name: 3}
    with StreamsGroupClient(target) as group:
        together = [CopartitionGroup(source_topics=[0, 1])]
        member = group.member("a", subtopology(0, names, copartitions=together))
        answer = member.join()
        expect(StatusCode.INCORRECTLY_PARTITIONED_TOPICS in statuses(answer), "the status")
        rows = ", ".join(f"{name}={counts[name]}" for name in names)
        expect_equal(
            (answer.status or [])[-1].status_detail,
            f"Following topics do not have the same number of partitions: [{{{rows}}}]",
            "its detail",
        )
    with StreamsGroupClient(target) as group:
        member = group.member("a", subtopology(0, [two.name], stores=[three.name]))
        answer = member.join()
        expect_equal(
            (answer.status or [])[-1].status_detail,
            f"Existing topic {three.name} has different number of partitions: expected 2, found 3",
            "the detail of an internal topic that exists",
        )


@REQUIREMENTS.that(
    12,
    "another topology of the same epoch is INVALID_REQUEST, that of an earlier one STALE_TOPOLOGY",
    source=MANAGER,
    since=SINCE,
)
def other_topologies(target: Target) -> None:
    with StreamsGroupClient(target) as group:
        member = lone(group, 1)
        member.join()
        parts = member.topology.subtopologies
        other = Topology(epoch=1, subtopologies=[subtopology(1, parts[0].source_topics)])
        for topology in (other, Topology(epoch=2, subtopologies=parts)):
            answer = group.ask(**member.joining(member_id="b", topology=topology))
            expect_error(answer.error_code, ErrorCode.INVALID_REQUEST, "another topology")
            why = "Topology updates are not supported yet."
            expect_equal(answer.error_message, why, "the reason")
        stale = Topology(epoch=0, subtopologies=parts)
        answer = group.ask(**member.joining(member_id="c", topology=stale))
        expect_error(answer.error_code, ErrorCode.NONE, "an earlier topology")
        expect(StatusCode.STALE_TOPOLOGY in statuses(answer), "STALE_TOPOLOGY")
        expect_equal(
            (answer.status or [])[0].status_detail,
            "The member's topology epoch 0 is behind the group's topology epoch 1.",
            "its detail",
        )


@REQUIREMENTS.that(
    13, "tasks that the topology does not have are INVALID_REQUEST", source=MANAGER, since=SINCE
)
def unknown_tasks(target: Target) -> None:
    with StreamsGroupClient(target) as group:
        member = lone(group)
        member.join()
        group.settle(member, wanted=[{"0": (0, 1)}])
        for tasks, why in (
            ({"7": (0,)}, "Subtopology 7 does not exist in the topology."),
            (
                {"0": (2,)},
                "Task 2 for subtopology 0 is invalid. Number of tasks for this subtopology: 2",
            ),
        ):
            answer = member.ask(active_tasks=rows_of(tasks), standby_tasks=[], warmup_tasks=[])
            expect_error(answer.error_code, ErrorCode.INVALID_REQUEST, str(tasks))
            expect_equal(answer.error_message, why, "the reason")


@REQUIREMENTS.that(
    14, "a member that requests a shutdown is a status for all members", source=MANAGER, since=SINCE
)
def shutdowns(target: Target) -> None:
    with StreamsGroupClient(target) as group:
        first = lone(group)
        second = group.member("b", *first.topology.subtopologies)
        first.join()
        second.join()
        group.settle_evenly(first, second, count=2)
        first.leave(shutdown_application=True)
        answer = second.beat()
        expect(StatusCode.SHUTDOWN_APPLICATION in statuses(answer), "SHUTDOWN_APPLICATION")
        expect_equal(
            (answer.status or [])[-1].status_detail,
            "Streams group member a encountered a fatal error and requested a shutdown for the "
            "entire application.",
            "its detail",
        )


@REQUIREMENTS.that(
    15,
    "members get the endpoints of all members, with the partitions of their tasks, when these "
    "change",
    source="EndpointToPartitionsManager",
    since=SINCE,
)
def endpoints(target: Target) -> None:
    with StreamsGroupClient(target) as group:
        first = lone(group, 2, user_endpoint=Endpoint(host="h", port=1234))
        name = first.topology.subtopologies[0].source_topics[0]
        first.join()
        group.settle(first, wanted=[{"0": (0, 1)}])
        answer = first.ask(endpoint_information_epoch=-1)
        rows = answer.partitions_by_user_endpoint or []
        expect_equal(
            [
                (row.user_endpoint.host, row.user_endpoint.port, len(row.standby_partitions))
                for row in rows
            ],
            [("h", 1234, 0)],
            "the endpoints",
        )
        expect_equal(
            [(each.topic, each.partitions) for each in rows[0].active_partitions],
            [(name, [0, 1])],
            "its partitions",
        )
        known = answer.endpoint_information_epoch
        answer = first.ask(endpoint_information_epoch=known)
        expect_equal(answer.partitions_by_user_endpoint, None, "unchanged endpoints")
        expect_equal(answer.endpoint_information_epoch, known, "their epoch")


@REQUIREMENTS.that(
    16,
    "static members and task offsets are not supported: INVALID_REQUEST",
    source="GroupCoordinatorService.throwIfStreamsGroupHeartbeatRequestIsUsingUnsupportedFeatures",
    since=SINCE,
    until="4.3",
)
def unsupported(target: Target) -> None:
    with StreamsGroupClient(target) as group:
        member = lone(group, 1)
        offsets = [TaskOffset(subtopology_id="0", partition=0, offset=5)]
        for changed, why in (
            ({"instance_id": "i"}, "Static membership is not yet supported."),
            ({"task_offsets": offsets}, "TaskOffsets are not supported yet."),
            ({"task_end_offsets": []}, "TaskEndOffsets are not supported yet."),
        ):
            answer = group.ask(**member.joining(**changed))
            expect_error(answer.error_code, ErrorCode.INVALID_REQUEST, str(changed))
            expect_equal(answer.error_message, why, str(changed))


@REQUIREMENTS.that(
    17,
    "a static member that has left for a while returns with another id to its tasks; its instance "
    "id is fenced until then",
    source=MANAGER,
    since="4.4",
)
def static_members(target: Target) -> None:
    with StreamsGroupClient(target) as group:
        first = lone(group, 2, instance_id="i")
        first.join()
        group.settle(first, wanted=[{"0": (0, 1)}])
        heir = group.member("b", *first.topology.subtopologies, instance_id="i")
        answer = group.ask(**heir.joining())
        expect_error(answer.error_code, ErrorCode.UNRELEASED_INSTANCE_ID, "before it has left")
        expect_equal(
            answer.error_message,
            "Static member b with instance id i cannot join the group because the instance id is "
            "owned by a member.",
            "the reason",
        )
        answer = first.leave(-2)
        expect_equal((answer.error_code, answer.member_epoch), (0, -2), "leaving for a while")
        heir.join()
        group.settle(heir, wanted=[{"0": (0, 1)}])
        answer = first.ask(instance_id="i")
        expect_error(answer.error_code, ErrorCode.FENCED_INSTANCE_ID, "the former member")
        answer = first.leave(-1)
        expect_error(answer.error_code, ErrorCode.FENCED_INSTANCE_ID, "the former member leaves")


@REQUIREMENTS.that(
    18,
    "version 1 has the interval and the lag of task offsets, which are refused if a task is there "
    "twice",
    source=MANAGER,
    since="4.4",
)
def task_offsets(target: Target) -> None:
    with StreamsGroupClient(target) as group:
        member = lone(group, 1)
        answer = group.ask_in(1, member.joining())
        expect_equal(
            (answer.task_offset_interval_ms, answer.acceptable_recovery_lag),
            (60_000, 10_000),
            "interval and lag",
        )
        expect_equal(answer.topology_description_required, False, "a broker without the plugin")
        offset = TaskOffset(subtopology_id="0", partition=0, offset=5)
        answer = group.ask(
            member_id="a", member_epoch=answer.member_epoch, task_offsets=[offset, offset]
        )
        expect_error(answer.error_code, ErrorCode.INVALID_REQUEST, "a task twice")
        expect_equal(
            answer.error_message,
            "Task offsets contain a duplicate entry for subtopology 0 and partition 0.",
            "the reason",
        )


@REQUIREMENTS.that(
    19,
    "streams.num.standby.replicas of the group gives stateful tasks standbys on other processes, "
    "with the next heartbeat",
    source="KIP-1071, GroupConfig.streamsNumStandbyReplicas",
    since=SINCE,
)
def standby_tasks(target: Target) -> None:
    topic, store = target.topic(partitions=2).name, target.topic(partitions=2).name
    with StreamsGroupClient(target) as group:
        part = subtopology(0, [topic], stores=[store])
        first, second = group.member("a", part), group.member("b", part)
        first.join()
        second.join()
        group.settle_evenly(first, second, count=2)
        expect_equal((first.standby, second.standby), (NO_TASKS, NO_TASKS), "standby tasks before")
        row = AlterableConfig(name="streams.num.standby.replicas", config_operation=SET, value="1")
        asked = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=int(ConfigResourceType.GROUP),
                    resource_name=group.group_id,
                    configs=[row],
                )
            ]
        )
        answer = group.peer.ask(asked, 1, IncrementalAlterConfigsResponse)
        expect_error(answer.responses[0].error_code, ErrorCode.NONE, "IncrementalAlterConfigs")

        def round_of_beats() -> tuple[object, object]:
            first.beat()
            second.beat()
            return first.standby, second.standby

        settled(
            round_of_beats,
            lambda found: found == (second.active, first.active),
            "standby tasks of what the other process runs",
        )
