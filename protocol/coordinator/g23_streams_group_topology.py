"""StreamsGroupTopology (23): the topology of a streams group, as its members sent it.

The coordinator creates the internal topics and assigns tasks from it.
Source: KIP-1071; StreamsGroupTopologyKey.json, StreamsGroupTopologyValue.json.
"""

from protocol.schema import array, int16, int32, message, string, structure


@message(key=23, kind="coordinator-key", versions="0", flexible="none")
class StreamsGroupTopologyKey:
    """By group."""

    group_id: str = string()


@structure
class TopicConfig:
    """A topic's setting."""

    key: str = string()
    value: str = string()


@structure
class TopicInfo:
    """An internal topic as the application requires it; 0 leaves the number of partitions open."""

    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[TopicConfig] = array(TopicConfig)


@structure
class CopartitionGroup:
    """Source topics that must be copartitioned, as indexes into those of the subtopology."""

    source_topics: list[int] = array(int16)
    source_topic_regex: list[int] = array(int16)
    repartition_source_topics: list[int] = array(int16)


@structure
class Subtopology:
    """A connected part of the topology: its source, sink, repartition and changelog topics."""

    subtopology_id: str = string()
    source_topics: list[str] = array(string)
    source_topic_regex: list[str] = array(string)
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_sink_topics: list[str] = array(string)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)


@message(key=23, kind="coordinator-value", versions="0", flexible="0+")
class StreamsGroupTopologyValue:
    """Subtopologies at a topology epoch."""

    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)
