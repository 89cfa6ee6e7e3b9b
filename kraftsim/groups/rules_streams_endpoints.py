"""The endpoints of a streams group's members, and the partitions whose state each has: interactive
queries are routed by them.

Source: org.apache.kafka.coordinator.group.streams.topics.EndpointToPartitionsManager,
StreamsGroup.buildEndpointToPartitions; there the order of subtopologies is random.
"""

from collections.abc import Iterable

from kraftsim.groups.rules_assignors import java_order
from kraftsim.groups.rules_consumer_group import TopicsView
from kraftsim.groups.rules_streams_assignor import Tasks
from kraftsim.groups.rules_streams_group import EndpointRow, StreamsMember, TopicTasks
from kraftsim.groups.rules_streams_topology import ConfiguredTopology
from kraftsim.groups.rules_timing import java_hash


def endpoint_rows(
    known: dict[str, EndpointRow],
    members: Iterable[StreamsMember],
    configured: ConfiguredTopology,
    topics: TopicsView,
    *,
    with_warmups: bool,
) -> tuple[EndpointRow, ...] | None:
    """Return a row for each member with an endpoint, and add it to the `known` ones; None if topics
    of tasks are unknown, for which Apache Kafka has no answer either.
    """
    rows: list[EndpointRow] = []
    for each in members:
        if each.user_endpoint is None:
            continue
        row = known.get(each.member_id)
        if row is not None:
            rows.append(row)
            continue
        held = each.assigned
        replicas = _union(held.standby, held.warmup) if with_warmups else held.standby
        active = _topic_tasks(configured, held.active_tasks(), topics)
        standby = _topic_tasks(configured, replicas, topics)
        if active is None or standby is None:
            return None
        row = known[each.member_id] = EndpointRow(each.user_endpoint, active, standby)
        rows.append(row)
    return tuple(rows)


def _topic_tasks(
    configured: ConfiguredTopology, tasks: Tasks, topics: TopicsView
) -> TopicTasks | None:
    if configured.subtopologies is None:
        return None
    rows: list[tuple[str, tuple[int, ...]]] = []
    for name, numbers in tasks.items():
        subtopology = configured.subtopologies.get(name)
        if subtopology is None:
            return None
        sources = dict.fromkeys((*subtopology.source_topics, *subtopology.repartition_sources))
        for topic in java_order(sources, java_hash):
            found = topics.find(topic)
            if found is None:
                return None
            there = tuple(sorted(number for number in numbers if number < found[1]))
            if there:
                rows.append((topic, there))
    return tuple(rows)


def _union(one: Tasks, other: Tasks) -> Tasks:
    return {
        name: tuple(sorted({*one.get(name, ()), *other.get(name, ())})) for name in {**one, **other}
    }
