"""Sorts what a Fetch asks for into what is read and what is refused unread.

A partition is refused unread when nothing in the metadata goes by its topic id or name and number, or
when the reader has no right to it. Such rows stand behind all that is read, and end no wait for
min_bytes. An error met by the read itself, NOT_LEADER_OR_FOLLOWER for one, stands in its place and is
answered at once.   Source: kafka.server.KafkaApis.handleFetchRequest (erroneous, interesting).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kraftsim.core.metadata.image import MetadataImage
from kraftsim.node.call import Allows
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
    """Partitions of a topic that are read; `name` is that of the topic when the request came."""

    name: str
    topic: str
    topic_id: bytes
    partitions: list[FetchPartition] = field(default_factory=list)


@dataclass(slots=True)
class SortedFetch:
    """What is read, and the rows of what is not, both in the order of the answer."""

    read: list[ReadTopic] = field(default_factory=list)
    refused: list[FetchableTopicResponse] = field(default_factory=list)


def sort_fetch(image: MetadataImage, topics: Iterable[FetchTopic], version: int, allows: Allows | None, *, is_follower: bool) -> SortedFetch:
    """Sort the partitions of a Fetch. `allows(name)`: whether the reader has a right to a topic.

    Consumers find unknown topic ids before all other refusals; followers without the right to act for
    the cluster find TOPIC_AUTHORIZATION_FAILED for each partition, known or not.
    """
    found = SortedFetch()
    later: list[FetchableTopicResponse] = []
    for topic in topics:
        name = _name_of(image, topic, version)
        if is_follower and allows is not None and not allows(name or ""):
            found.refused.append(_refused(topic, topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
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


def _split(image: MetadataImage, name: str, asked: list[FetchPartition]) -> tuple[list[FetchPartition], list[FetchPartition]]:
    """Return the partitions that are in the metadata, and those that are not."""
    topic = image.topic(name)
    if topic is None:
        return [], asked
    there = topic.partitions
    unknown = [partition for partition in asked if partition.partition not in there]
    if not unknown:
        return asked, unknown
    return [partition for partition in asked if partition.partition in there], unknown


def _refused(topic: FetchTopic, partitions: Iterable[FetchPartition], error: ErrorCode) -> FetchableTopicResponse:
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
