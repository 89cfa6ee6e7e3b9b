"""The topics of a streams group's topology: how many partitions the internal ones need, which are
missing, and how many tasks each subtopology has.

Source: KIP-1071, org.apache.kafka.coordinator.group.streams.{StreamsTopology,
topics.{InternalTopicManager, RepartitionTopics, CopartitionedTopicsEnforcer, ChangelogTopics}}.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.groups.rules_assignors import hash_set_order, java_order
from kraftsim.groups.rules_consumer_group import TopicsView
from kraftsim.groups.rules_streams_assignor import SubtopologyTasks
from kraftsim.groups.rules_timing import java_hash
from protocol.coordinator.streams_groups import (
    StreamsGroupTopologyValue,
    Subtopology,
    TopicInfo,
)
from protocol.errors import ErrorCode
from protocol.messages.k88_streams_group_heartbeat import StatusCode

SHOWN_TOPICS: Final = 3
"""How many topics a status names."""
OPEN_COUNT: Final = 0
"""The number of partitions of a topic that leaves it open."""
DEFAULT_REPLICATION: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """A repartition or changelog topic; a `replication_factor` of 0 is the broker's default."""

    name: str
    partitions: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TopicProblem:
    """Why tasks cannot be assigned, as the members are informed."""

    status: StatusCode
    detail: str


@dataclass(frozen=True, slots=True)
class ReadySubtopology:
    """A subtopology whose topics are known."""

    tasks: int
    source_topics: tuple[str, ...]
    repartition_sources: Mapping[str, InternalTopic]
    repartition_sinks: tuple[str, ...]
    changelogs: Mapping[str, InternalTopic]


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """A topology and the topics of the cluster.

    `subtopologies`, by id and sorted, is None if source topics are missing or partition counts do
    not fit. `missing` are the internal topics to create.
    """

    epoch: int
    subtopologies: Mapping[str, ReadySubtopology] | None
    missing: tuple[InternalTopic, ...] = ()
    problem: TopicProblem | None = None

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be assigned."""
        return self.problem is None

    def tasks(self) -> dict[str, SubtopologyTasks]:
        """Return the subtopologies as input of the assignor."""
        return {
            name: SubtopologyTasks(each.tasks, bool(each.changelogs))
            for name, each in (self.subtopologies or {}).items()
        }


class _Problem(Exception):
    """The topics do not fit the topology."""

    def __init__(self, status: StatusCode, detail: str) -> None:
        self.problem = TopicProblem(status, detail)


class _InvalidTopology(Exception):
    """No topics fit the topology; `why` is None if Apache Kafka does not expect it."""

    def __init__(self, why: str | None = None) -> None:
        self.why = why


def required_topics(topology: StreamsGroupTopologyValue) -> list[str]:
    """Return the topics that the tasks read or write, in the iteration order of Kafka's set."""
    names = (
        name
        for each in by_id(topology)
        for name in (*_sources(each), *(topic.name for topic in each.state_changelog_topics))
    )
    return java_order(dict.fromkeys(names), java_hash)


def subtopologies_by_source(topology: StreamsGroupTopologyValue) -> dict[str, str]:
    """Return by source or repartition source topic the subtopology that reads it."""
    return {name: each.subtopology_id for each in by_id(topology) for name in _sources(each)}


def is_same_topology(one: StreamsGroupTopologyValue, other: StreamsGroupTopologyValue) -> bool:
    """Return whether two topologies are equal; subtopologies may be in any order."""
    mine = {each.subtopology_id: each for each in one.subtopologies}
    return one.epoch == other.epoch and mine == {
        each.subtopology_id: each for each in other.subtopologies
    }


def refuse_topology(topology: StreamsGroupTopologyValue) -> Refusal | None:
    """Return UNKNOWN_SERVER_ERROR for a topology that Apache Kafka's classes cannot represent."""
    ids = {each.subtopology_id for each in topology.subtopologies}
    if topology.epoch >= 0 and len(ids) == len(topology.subtopologies):
        return None
    return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)


def _has_valid_indexes(each: Subtopology) -> bool:
    return all(
        -1 < index < count
        for group in each.copartition_groups
        for indexes, count in (
            (group.source_topics, len(each.source_topics)),
            (group.repartition_source_topics, len(each.repartition_source_topics)),
        )
        for index in indexes
    )


def configure(
    topology: StreamsGroupTopologyValue, topics: TopicsView
) -> ConfiguredTopology | Refusal:
    """Return a topology with the cluster's topics, or STREAMS_INVALID_TOPOLOGY if no topics fit."""
    try:
        return _configured(topology, topics)
    except _Problem as failure:
        return ConfiguredTopology(topology.epoch, None, problem=failure.problem)
    except _InvalidTopology as failure:
        if failure.why is None:
            return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
        return Refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, failure.why)


def by_id(topology: StreamsGroupTopologyValue) -> list[Subtopology]:
    """Return the subtopologies in the iteration order of Kafka's map."""
    return java_order(topology.subtopologies, lambda each: java_hash(each.subtopology_id))


def _configured(topology: StreamsGroupTopologyValue, topics: TopicsView) -> ConfiguredTopology:
    rows = by_id(topology)
    if not all(map(_has_valid_indexes, rows)):
        raise _InvalidTopology
    missing = sorted(
        {name for each in rows for name in each.source_topics if topics.find(name) is None}
    )
    if missing:
        detail = f"Source topics {_summary(missing)} are missing."
        raise _Problem(StatusCode.MISSING_SOURCE_TOPICS, detail)
    counts = _Counts(topics)
    counts.decided.update(_repartition_counts(rows, counts))
    _enforce_copartitions(rows, counts)
    counts.decided.update(_changelog_counts(rows, counts))
    ready = {
        each.subtopology_id: _ready(each, counts)
        for each in sorted(rows, key=lambda each: each.subtopology_id)
    }
    absent = _missing_topics(ready, topology, topics)
    problem = None
    if absent:
        names = _summary([topic.name for topic in absent])
        problem = TopicProblem(
            StatusCode.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}"
        )
    return ConfiguredTopology(topology.epoch, ready, tuple(absent), problem)


@dataclass(slots=True)
class _Counts:
    """Partition counts: of topics that exist, else as decided."""

    topics: TopicsView
    decided: dict[str, int] = field(default_factory=dict)

    def find(self, name: str) -> int | None:
        found = self.topics.find(name)
        return self.decided.get(name) if found is None else found[1]

    def get(self, name: str) -> int:
        count = self.find(name)
        if count is None:
            raise _InvalidTopology
        return count


def _sources(each: Subtopology) -> list[str]:
    return [*each.source_topics, *(topic.name for topic in each.repartition_source_topics)]


def _repartition_counts(rows: Sequence[Subtopology], counts: _Counts) -> dict[str, int]:
    """Return the partitions of repartition topics: as many as the largest input of the subtopology
    that writes to it.
    """
    decided = {
        topic.name: topic.partitions
        for each in rows
        for topic in each.repartition_source_topics
        if topic.partitions != OPEN_COUNT
    }
    is_open = True
    while is_open:
        is_open = has_progress = False
        for each in rows:
            for name in each.repartition_sink_topics:
                if name in decided:
                    continue
                count = _largest_input(each, decided, counts)
                if count is None:
                    is_open = True
                else:
                    decided[name] = count
                    has_progress = True
        if is_open and not has_progress:
            raise _InvalidTopology(
                "Failed to compute number of partitions for all repartition topics. There may be "
                "loops in the topology that cannot be resolved."
            )
    if any(topic.name not in decided for each in rows for topic in each.repartition_source_topics):
        raise _InvalidTopology(
            "Failed to compute number of partitions for all repartition topics, because a "
            "repartition source topic is never used as a sink topic."
        )
    return decided


def _largest_input(each: Subtopology, decided: Mapping[str, int], counts: _Counts) -> int | None:
    inputs = [
        *(decided.get(topic.name) for topic in each.repartition_source_topics),
        *(counts.find(name) for name in each.source_topics),
    ]
    return max((count for count in inputs if count is not None), default=None)


def _enforce_copartitions(rows: Sequence[Subtopology], counts: _Counts) -> None:
    """Give the topics of each copartition group one number of partitions."""
    repartitions = [topic for each in rows for topic in each.repartition_source_topics]
    fixed = hash_set_order(
        dict.fromkeys(topic.name for topic in repartitions if topic.partitions != OPEN_COUNT),
        java_hash,
    )
    flexible = {topic.name for topic in repartitions if topic.partitions == OPEN_COUNT}
    for each in rows:
        for group in each.copartition_groups:
            names = dict.fromkeys(
                (
                    *(each.source_topics[index] for index in group.source_topics),
                    *(
                        each.repartition_source_topics[index].name
                        for index in group.repartition_source_topics
                    ),
                )
            )
            counts.decided.update(
                _enforced(java_order(names, java_hash), fixed, flexible, counts.get)
            )


def _enforced(
    names: Sequence[str], fixed: Sequence[str], flexible: set[str], count_of: Callable[[str], int]
) -> dict[str, int]:
    is_fixed = frozenset(fixed)
    internal = {name: count_of(name) for name in names if name in is_fixed or name in flexible}
    external = {name: count_of(name) for name in names if name not in internal}
    if external:
        count = _same(external)
    elif fixed:
        count = count_of(fixed[0])
        if any(count_of(name) != count for name in fixed):
            raise _different(internal)
    else:
        count = max(internal.values(), default=0)
    if names and not external and not fixed and count == 0:
        raise _InvalidTopology(
            "All topics in the copartition group had undefined partition number: "
            f"[{', '.join(internal)}]"
        )
    for name, wanted in internal.items():
        if name in is_fixed and wanted != count:
            raise _Problem(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{wanted}] of repartition topic [{name}] doesn't match "
                f"number of partitions [{count}] of the source topic.",
            )
    return dict.fromkeys(internal, count)


def _same(counts: Mapping[str, int]) -> int:
    first = next(iter(counts.values()))
    if any(count != first for count in counts.values()):
        raise _different(counts)
    return first


def _different(counts: Mapping[str, int]) -> _Problem:
    rows = ", ".join(f"{name}={counts[name]}" for name in sorted(counts))
    return _Problem(
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        f"Following topics do not have the same number of partitions: [{{{rows}}}]",
    )


def _changelog_counts(rows: Sequence[Subtopology], counts: _Counts) -> dict[str, int]:
    decided: dict[str, int] = {}
    for each in rows:
        sources = [counts.get(name) for name in _sources(each)]
        if not sources:
            raise _InvalidTopology(f"No source topics found for subtopology {each.subtopology_id}")
        decided.update(
            dict.fromkeys((topic.name for topic in each.state_changelog_topics), max(sources))
        )
    return decided


def _ready(each: Subtopology, counts: _Counts) -> ReadySubtopology:
    tasks = max(counts.get(name) for name in _sources(each))
    if tasks < 1:
        raise _InvalidTopology
    return ReadySubtopology(
        tasks,
        tuple(dict.fromkeys(each.source_topics)),
        _internal(each.repartition_source_topics, counts),
        tuple(dict.fromkeys(each.repartition_sink_topics)),
        _internal(each.state_changelog_topics, counts),
    )


def _internal(rows: Iterable[TopicInfo], counts: _Counts) -> dict[str, InternalTopic]:
    found: dict[str, InternalTopic] = {}
    for topic in rows:
        decided = counts.decided.get(topic.name)
        partitions = decided if topic.partitions == OPEN_COUNT else topic.partitions
        if partitions is None or partitions < 1 or topic.name in found:
            raise _InvalidTopology
        configs = {row.key: row.value for row in topic.topic_configs}
        found[topic.name] = InternalTopic(
            name=topic.name,
            partitions=partitions,
            replication_factor=topic.replication_factor,
            configs=tuple((key, configs[key]) for key in java_order(configs, java_hash)),
        )
    return {name: found[name] for name in java_order(found, java_hash)}


def _missing_topics(
    ready: Mapping[str, ReadySubtopology], topology: StreamsGroupTopologyValue, topics: TopicsView
) -> list[InternalTopic]:
    wanted = {
        topic.name: topic
        for each in ready.values()
        for topic in (*each.repartition_sources.values(), *each.changelogs.values())
    }
    order = java_order(wanted, java_hash)
    for name in required_topics(topology):
        found = topics.find(name)
        if found is None:
            continue
        expected = wanted.pop(name, None)
        if expected is not None and found[1] != expected.partitions:
            raise _Problem(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected "
                f"{expected.partitions}, found {found[1]}",
            )
    return [wanted[name] for name in order if name in wanted]


def _summary(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN_TOPICS])
    more = len(names) - SHOWN_TOPICS
    return shown + (f" and {more} additional topics" if more > 0 else "")
