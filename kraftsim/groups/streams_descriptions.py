"""Descriptions of streams groups: topology, members, and the current and target tasks of each.

Source: org.apache.kafka.coordinator.group.streams.{StreamsGroup.asDescribedGroup,
StreamsGroupMember.asStreamsGroupDescribeMember}.
"""

from collections.abc import Iterable, Mapping

from kraftsim.groups.rules_group_table import Group
from kraftsim.groups.rules_streams_assignor import STICKY, Task, Tasks
from kraftsim.groups.rules_streams_group import (
    NO_TASK_OFFSETS,
    NO_TASK_SET,
    StreamsGroup,
    StreamsMember,
)
from kraftsim.groups.rules_streams_topology import InternalTopic
from protocol.coordinator import streams_groups as records
from protocol.errors import ErrorCode
from protocol.messages.k89_streams_group_describe import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)


def weight_of(group: Group) -> int:
    """Return how many rows the description of a streams group has, roughly."""
    assert isinstance(group, StreamsGroup), "by its type"
    return 1 + sum(1 + len(member.assigned.active) for member in group.members.values())


def description_of(group: Group) -> DescribedGroup:
    """Return the description of a streams group."""
    assert isinstance(group, StreamsGroup), "by its type"
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=STICKY,
        topology=_topology(group),
        members=[_member(group, member) for member in group.members.values()],
    )


def _topology(group: StreamsGroup) -> Topology | None:
    """Return the topology as it is configured, else as the first member brought it."""
    configured, topology = group.configured, group.topology
    if configured is not None and configured.is_ready and configured.subtopologies is not None:
        return Topology(
            epoch=configured.epoch,
            subtopologies=[
                Subtopology(
                    subtopology_id=name,
                    source_topics=sorted(each.source_topics),
                    repartition_sink_topics=sorted(each.repartition_sinks),
                    repartition_source_topics=_internal(each.repartition_sources),
                    state_changelog_topics=_internal(each.changelogs),
                )
                for name, each in configured.subtopologies.items()
            ],
        )
    if topology is None:
        return None
    return Topology(
        epoch=topology.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=sorted(each.source_topics),
                repartition_sink_topics=sorted(each.repartition_sink_topics),
                repartition_source_topics=_asked(each.repartition_source_topics),
                state_changelog_topics=_asked(each.state_changelog_topics),
            )
            for each in sorted(topology.subtopologies, key=lambda each: each.subtopology_id)
        ],
    )


def _internal(topics: Mapping[str, InternalTopic]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=name,
            partitions=topics[name].partitions,
            replication_factor=topics[name].replication_factor,
            topic_configs=[KeyValue(key=key, value=value) for key, value in topics[name].configs],
        )
        for name in sorted(topics)
    ]


def _asked(topics: Iterable[records.TopicInfo]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[KeyValue(key=row.key, value=row.value) for row in topic.topic_configs],
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


def _member(group: StreamsGroup, member: StreamsMember) -> Member:
    endpoint = member.user_endpoint
    offsets = group.task_offsets.get(member.member_id, NO_TASK_OFFSETS)
    target = group.targets.get(member.member_id, NO_TASK_SET)
    held = member.assigned
    return Member(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint[0], port=endpoint[1]),
        client_tags=[KeyValue(key=key, value=value) for key, value in member.client_tags.items()],
        task_offsets=_offsets(offsets.offsets),
        task_end_offsets=_offsets(offsets.ends),
        assignment=_assignment(held.active_tasks(), held.standby, held.warmup),
        target_assignment=_assignment(target.active, target.standby, target.warmup),
    )


def _assignment(active: Tasks, standby: Tasks, warmup: Tasks) -> Assignment:
    return Assignment(
        active_tasks=_rows(active), standby_tasks=_rows(standby), warmup_tasks=_rows(warmup)
    )


def _rows(tasks: Tasks) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=sorted(tasks[name])) for name in sorted(tasks)]


def _offsets(offsets: Mapping[Task, int]) -> list[TaskOffset]:
    return [
        TaskOffset(subtopology_id=task[0], partition=task[1], offset=offsets[task])
        for task in sorted(offsets)
    ]
