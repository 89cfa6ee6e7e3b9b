"""Topics in a Metadata request, by name or id: which rows count, and which requests are refused.

The handler and the authorizer check share these rules: the check must not answer for rows that
Kafka refuses or ignores.
Source: org.apache.kafka.common.requests.MetadataRequest,
kafka.server.KafkaApis.handleTopicMetadataRequest, KAFKA-10774; checked against 3.9.1 and 4.4.0.
"""

from collections.abc import Sequence

from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from protocol.uuids import ZERO_UUID

FIRST_VERSION_WITH_IDS = 10
FIRST_VERSION_BY_ID = 12
"""Versions 10 and 11 have a field for topic ids, but requests that use it are refused."""


def why_refused(request: MetadataRequest, version: int) -> ErrorCode | None:
    """Return the error of a request that is refused as a whole, whatever the principal."""
    if version < FIRST_VERSION_WITH_IDS or not request.topics:
        return None
    if version < FIRST_VERSION_BY_ID:
        is_by_id = any(
            topic.name is None or topic.topic_id != ZERO_UUID for topic in request.topics
        )
        return ErrorCode.INVALID_REQUEST if is_by_id else None
    is_without_either = any(
        topic.name is None and topic.topic_id == ZERO_UUID for topic in looked_up(request.topics)
    )
    return (
        ErrorCode.UNKNOWN_SERVER_ERROR if is_without_either else None
    )  # a NullPointerException in Kafka


def looked_up(topics: Sequence[MetadataRequestTopic]) -> Sequence[MetadataRequestTopic]:
    """Return the rows that count: if one has an id, those without are ignored."""
    by_id = [topic for topic in topics if topic.topic_id != ZERO_UUID]
    return by_id or topics


def once_each(topics: Sequence[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    """Return the rows that count, without duplicates."""
    return list({(topic.name, topic.topic_id): topic for topic in looked_up(topics)}.values())
