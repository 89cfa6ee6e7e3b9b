"""Sorts the partitions of a Fetch into those to read and those to reject without reading.

A partition is rejected without reading when the metadata has no such topic id or name and
partition, or when the client is not authorized. Such rows come after all rows that are read, and do
not complete a wait for min_bytes. An error of the read itself, such as NOT_LEADER_OR_FOLLOWER,
keeps its position and completes the request at once.
Source: kafka.server.KafkaApis.handleFetchRequest (erroneous, interesting).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.server.call import Allows
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchTopic,
    PartitionData,
)

FIRST_VERSION_WITH_TOPIC_IDS = 13
NO_OFFSET = -1


@dataclass(slots=True)
class ReadTopic:
    """Partitions of a topic that are read; `name` is the topic's name when the request arrived."""

    name: str
    topic: str
    topic_id: bytes
    partitions: list[FetchPartition] = field(default_factory=list)


@dataclass(slots=True)
class SortedFetch:
    """The partitions to read, and the rows of those that are rejected, both in the order of the
    response.
    """

    read: list[ReadTopic] = field(default_factory=list)
    refused: list[FetchableTopicResponse] = field(default_factory=list)


def sort_fetch(
    image: MetadataImage,
    topics: Iterable[FetchTopic],
    version: int,
    allows: Allows | None,
    *,
    is_follower: bool,
) -> SortedFetch:
    """Sort the partitions of a Fetch. `allows(name)`: whether the client is authorized for a topic.

    For consumers an unknown topic id takes precedence over all other errors; a follower without
    CLUSTER_ACTION gets TOPIC_AUTHORIZATION_FAILED for each partition, known or not.
    """
    found = SortedFetch()
    later: list[FetchableTopicResponse] = []
    for topic in topics:
        name = _name_of(image, topic, version)
        if is_follower and allows is not None and not allows(name or ""):
            found.refused.append(
                _refused(topic, topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            )
        elif name is None:
            found.refused.append(_refused(topic, topic.partitions, ErrorCode.UNKNOWN_TOPIC_ID))
        elif allows is not None and not allows(name):
            later.append(_refused(topic, topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        else:
            known, unknown = _split(image, name, topic.partitions)
            if known:
                found.read.append(ReadTopic(name, topic.topic, topic.topic_id, known))
            if unknown:
                rows = found.refused if is_follower else later
                rows.append(_refused(topic, unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    found.refused.extend(later)
    return found


def _name_of(image: MetadataImage, topic: FetchTopic, version: int) -> str | None:
    """Return the name of a topic; None for an id that is not known."""
    if version < FIRST_VERSION_WITH_TOPIC_IDS:
        return topic.topic
    known = image.topic_by_id(topic.topic_id)
    return None if known is None else known.name


def _split(
    image: MetadataImage, name: str, asked: list[FetchPartition]
) -> tuple[list[FetchPartition], list[FetchPartition]]:
    """Return the partitions that are in the metadata, and those that are not."""
    topic = image.topic(name)
    if topic is None:
        return [], asked
    there = topic.partitions
    unknown = [partition for partition in asked if partition.partition not in there]
    if not unknown:
        return asked, unknown
    return [partition for partition in asked if partition.partition in there], unknown


def _refused(
    topic: FetchTopic, partitions: Iterable[FetchPartition], error: ErrorCode
) -> FetchableTopicResponse:
    rows = [
        PartitionData(
            partition_index=partition.partition,
            error_code=error,
            high_watermark=NO_OFFSET,
            aborted_transactions=[],
            records=b"",
        )
        for partition in partitions
    ]
    return FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=rows)
