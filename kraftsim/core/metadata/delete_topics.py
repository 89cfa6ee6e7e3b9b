"""DeleteTopics: resolves topics by name or id, and removes them.
Source: KIP-4, KIP-516, ControllerApis.deleteTopics.

The error messages are Kafka's. A topic that occurs more than once, by name or id, is not deleted,
as the request is ambiguous.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kraftsim.core.decision import Decision, Refusal
from kraftsim.core.metadata.partition_events import partition_events
from kraftsim.core.metadata.replication_view import (
    RECORDS_PER_OPERATION_MAX,
    TOO_LARGE,
    ReplicationView,
)
from protocol.errors import ErrorCode
from protocol.metadata.m09_remove_topic import RemoveTopicRecord
from protocol.schema import Message
from protocol.uuids import ZERO_UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicToDelete:
    """One topic of a request: a name, or null and an id."""

    name: str | None
    topic_id: bytes = ZERO_UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedTopic:
    """The result for one topic.

    `name` is null and `topic_id` zero if neither requested nor found.
    """

    name: str | None
    topic_id: bytes
    refusal: Refusal | None = None


def decide_delete_topics(
    view: ReplicationView, asked: Sequence[TopicToDelete]
) -> Decision[list[DeletedTopic]] | Refusal:
    """Delete topics; one result per requested topic.

    Fails as a whole with POLICY_VIOLATION if the request is too large.
    """
    results: list[DeletedTopic] = []
    names, ids = _sorted_out(asked, results)
    found: dict[bytes, str] = {}
    for topic_id in (topic_id for topic_id, count in ids.items() if count == 1):
        topic = view.topics.topic(topic_id)
        if topic is None:
            unknown = Refusal(
                ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
            )
            results.append(DeletedTopic(name=None, topic_id=topic_id, refusal=unknown))
        else:
            found[topic_id] = topic.name
    for name in names:
        named_id = view.topics.topic_id(name)
        if named_id is None:
            unknown = Refusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "This server does not host this topic-partition.",
            )
            results.append(DeletedTopic(name=name, topic_id=ZERO_UUID, refusal=unknown))
        elif named_id in ids:
            found.pop(named_id, None)
            supplied = Refusal(
                ErrorCode.INVALID_REQUEST,
                "The provided topic name maps to an ID that was already supplied.",
            )
            results.append(DeletedTopic(name=name, topic_id=named_id, refusal=supplied))
        else:
            found[named_id] = name
    if len(found) > RECORDS_PER_OPERATION_MAX:
        return Refusal(ErrorCode.POLICY_VIOLATION, TOO_LARGE)
    records: list[Message] = [RemoveTopicRecord(topic_id=topic_id) for topic_id in found]
    results += [DeletedTopic(name=name, topic_id=topic_id) for topic_id, name in found.items()]
    return Decision(records, results, partition_events(records, view.topics))


def _sorted_out(
    asked: Sequence[TopicToDelete], results: list[DeletedTopic]
) -> tuple[list[str], Counter[bytes]]:
    """Return the names requested once, and the count of each id; add results for invalid
    entries.
    """
    for topic in asked:
        if topic.name is None and topic.topic_id == ZERO_UUID:
            nothing = Refusal(
                ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified."
            )
            results.append(DeletedTopic(name=None, topic_id=ZERO_UUID, refusal=nothing))
        elif topic.name is not None and topic.topic_id != ZERO_UUID:
            both = Refusal(
                ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
            )
            results.append(DeletedTopic(name=topic.name, topic_id=topic.topic_id, refusal=both))
    names = Counter(
        topic.name for topic in asked if topic.name is not None and topic.topic_id == ZERO_UUID
    )
    ids = Counter(
        topic.topic_id for topic in asked if topic.name is None and topic.topic_id != ZERO_UUID
    )
    twice_by_id = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
    twice_by_name = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    results += [
        DeletedTopic(name=name, topic_id=ZERO_UUID, refusal=twice_by_name)
        for name, count in names.items()
        if count > 1
    ]
    results += [
        DeletedTopic(name=None, topic_id=topic_id, refusal=twice_by_id)
        for topic_id, count in ids.items()
        if count > 1
    ]
    return [name for name, count in names.items() if count == 1], ids
