"""DeleteTopics (20): by name and by id, topic by topic.

Source: KIP-4, KIP-516; ControllerApis.deleteTopics, ReplicationControlManager.deleteTopics.
"""

import time
from collections.abc import Sequence

from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import PAUSE_SECONDS, SETTLE_SECONDS, Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.uuids import ZERO_UUID

REQUIREMENTS = Requirements("delete-topics", 1, "DeleteTopics")
DELETE = "ControllerApis.deleteTopics"
IDS_SINCE = 6
MESSAGES_SINCE = 5
TIMEOUT_MS = 15_000
UNKNOWN_ID = b"nobody has it..."
NO_SUCH_TOPIC = "This server does not host this topic-partition."
NO_SUCH_ID = "This server does not host this topic ID."


def _delete(
    target: Target, version: int, *topics: tuple[str | None, bytes], timeout_ms: int = TIMEOUT_MS
) -> list[DeletableTopicResult]:
    """Delete topics, each by a name or an id; before version 6 by names only."""
    if version < IDS_SINCE:
        asked = DeleteTopicsRequest(
            topic_names=[name or "" for name, _ in topics], timeout_ms=timeout_ms
        )
    else:
        asked = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics],
            timeout_ms=timeout_ms,
        )
    with target.peer() as peer:
        return peer.ask(asked, version, DeleteTopicsResponse).responses


def _contents(rows: list[DeletableTopicResult]) -> list[tuple[str, bytes, int, str]]:
    """Return the content of a response, independent of the order of its rows."""
    return sorted(
        (row.name or "", bytes(row.topic_id), row.error_code, row.error_message or "")
        for row in rows
    )


def _refused(
    target: Target,
    what: str,
    expected: Sequence[tuple[str | None, bytes, ErrorCode, str]],
    *topics: tuple[str | None, bytes],
) -> None:
    rows = _contents(_delete(target, target.newest(ApiKey.DELETE_TOPICS), *topics))
    expect_equal(
        rows,
        sorted((name or "", topic_id, int(error), why) for name, topic_id, error, why in expected),
        what,
    )


def _expect_gone(target: Target, name: str, what: str) -> None:
    asked = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
    )
    give_up_at = time.monotonic() + SETTLE_SECONDS
    while True:
        with target.peer() as peer:
            code = (
                peer.ask(asked, target.newest(ApiKey.METADATA), MetadataResponse)
                .topics[0]
                .error_code
            )
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or time.monotonic() > give_up_at:
            expect_error(
                code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{what}: Metadata of the topic"
            )
            return
        time.sleep(PAUSE_SECONDS)


@REQUIREMENTS.that(
    1,
    "a topic is deleted by its name in every version; since version 6 the response contains its id",
    source=f"KIP-4; {DELETE}",
)
def by_name(target: Target) -> None:
    for version in target.versions(ApiKey.DELETE_TOPICS):
        topic = target.topic()
        row = _delete(target, version, (topic.name, ZERO_UUID))[0]
        expect_error(row.error_code, ErrorCode.NONE, f"version {version}")
        expect_equal(row.name, topic.name, f"version {version}: name")
        if version >= MESSAGES_SINCE:
            expect_equal(row.error_message, None, f"version {version}: error message")
        if version >= IDS_SINCE:
            expect_equal(bytes(row.topic_id), topic.topic_id, f"version {version}: topic id")
        _expect_gone(target, topic.name, f"version {version}")


@REQUIREMENTS.that(
    2,
    "a topic is deleted by its id, and the response contains its name",
    source=f"KIP-516; {DELETE}",
)
def by_id(target: Target) -> None:
    for version in target.versions(ApiKey.DELETE_TOPICS, since=IDS_SINCE):
        topic = target.topic()
        row = _delete(target, version, (None, topic.topic_id))[0]
        expect_error(row.error_code, ErrorCode.NONE, f"version {version}")
        expect_equal(
            (row.name, bytes(row.topic_id)),
            (topic.name, topic.topic_id),
            f"version {version}: name and id",
        )
        _expect_gone(target, topic.name, f"version {version}")


@REQUIREMENTS.that(
    3,
    "the name of a deleted topic can be reused; the new topic has another id and starts at "
    "offset 0",
    source="KIP-516",
)
def name_is_free(target: Target) -> None:
    topic = target.topic()
    expect_error(
        _delete(target, target.newest(ApiKey.DELETE_TOPICS), (topic.name, ZERO_UUID))[0].error_code,
        ErrorCode.NONE,
        "the deletion",
    )
    _expect_gone(target, topic.name, "the deletion")
    again = target.topic(name=topic.name)
    expect(again.topic_id != topic.topic_id, "the new topic has the old id")


@REQUIREMENTS.that(
    4,
    "an unknown name returns UNKNOWN_TOPIC_OR_PARTITION, an unknown id UNKNOWN_TOPIC_ID, with an "
    "error message",
    source=f"{DELETE}; verified against Apache Kafka 3.9.1",
)
def not_there(target: Target) -> None:
    for version in target.versions(ApiKey.DELETE_TOPICS):
        row = _delete(target, version, (target.fresh_name(), ZERO_UUID))[0]
        expect_error(row.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"version {version}")
        if version >= MESSAGES_SINCE:
            expect_equal(row.error_message, NO_SUCH_TOPIC, f"version {version}: error message")
    expected = [(None, UNKNOWN_ID, ErrorCode.UNKNOWN_TOPIC_ID, NO_SUCH_ID)]
    _refused(target, "an unknown id", expected, (None, UNKNOWN_ID))


@REQUIREMENTS.that(
    5, "a topic that is listed twice, by name or id, is not deleted: INVALID_REQUEST", source=DELETE
)
def twice(target: Target) -> None:
    topic = target.topic()
    name, topic_id = topic.name, topic.topic_id
    refused = ErrorCode.INVALID_REQUEST
    by_its_name = (name, ZERO_UUID, refused, "Duplicate topic name.")
    by_its_id = (None, topic_id, refused, "Duplicate topic id.")
    supplied = (
        name,
        topic_id,
        refused,
        "The provided topic name maps to an ID that was already supplied.",
    )
    _refused(target, "a name twice", [by_its_name], (name, ZERO_UUID), (name, ZERO_UUID))
    _refused(target, "an id twice", [by_its_id], (None, topic_id), (None, topic_id))
    _refused(target, "a name and its id", [supplied], (name, ZERO_UUID), (None, topic_id))
    _refused(
        target,
        "a name and its id twice",
        [by_its_id, supplied],
        (name, ZERO_UUID),
        (None, topic_id),
        (None, topic_id),
    )
    both = (name, topic_id, refused, "You may not specify both topic name and topic id.")
    _refused(target, "a name with an id", [both], (name, topic_id))
    row = _delete(target, target.newest(ApiKey.DELETE_TOPICS), (name, ZERO_UUID))[0]
    expect_error(row.error_code, ErrorCode.NONE, "the topic, which must still be there")


@REQUIREMENTS.that(6, "a row without name and id is rejected with INVALID_REQUEST", source=DELETE)
def nothing(target: Target) -> None:
    expected = [
        (None, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    ]
    _refused(target, "neither name nor id", expected, (None, ZERO_UUID))


@REQUIREMENTS.that(
    7, "each topic of a request is deleted or rejected independently", source="KIP-4"
)
def each_by_itself(target: Target) -> None:
    topic, missing = target.topic(), target.fresh_name()
    for row in _delete(
        target, target.newest(ApiKey.DELETE_TOPICS), (missing, ZERO_UUID), (topic.name, ZERO_UUID)
    ):
        expected = (
            ErrorCode.NONE if row.name == topic.name else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        expect_error(row.error_code, expected, f"topic {row.name}")


@REQUIREMENTS.that(8, "a request without topics gets a response without topics", source=DELETE)
def no_topics(target: Target) -> None:
    for version in target.versions(ApiKey.DELETE_TOPICS):
        expect_equal(_delete(target, version), [], f"version {version}: rows of the answer")


@REQUIREMENTS.that(
    9,
    "a zero time-out returns REQUEST_TIMED_OUT, and nothing is deleted",
    source="KafkaEventQueue; verified against Apache Kafka 3.9.1",
)
def no_time(target: Target) -> None:
    topic = target.topic()
    version = target.newest(ApiKey.DELETE_TOPICS)
    for timeout_ms in (0, -1):
        row = _delete(target, version, (topic.name, ZERO_UUID), timeout_ms=timeout_ms)[0]
        expect_error(row.error_code, ErrorCode.REQUEST_TIMED_OUT, f"a time-out of {timeout_ms} ms")
        expect_equal(row.error_message, None, f"a time-out of {timeout_ms} ms: error message")
    expect_error(
        _delete(target, version, (topic.name, ZERO_UUID))[0].error_code,
        ErrorCode.NONE,
        "the topic, which must still be there",
    )
