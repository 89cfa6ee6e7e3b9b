"""Fetch (1) of partitions that are not in the metadata, together with others that are.

Source: kafka.server.KafkaApis.handleFetchRequest (erroneous, interesting), FetchResponse.of.
"""

import selectors
import time
from contextlib import ExitStack

from kraftsim.conformance.batches import filled_topic
from kraftsim.conformance.expect import expect, expect_equal
from kraftsim.conformance.k01_fetch import IDS_SINCE, NO_ID, PLENTY, SESSIONS_SINCE
from kraftsim.conformance.peer import ANSWER_SECONDS, Peer, PeerSilent
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target, TargetTopic
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import (
    FIRST_SESSION_EPOCH,
    READ_COMMITTED,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)

REQUIREMENTS = Requirements("fetch", 7, "Unknown partitions")
HANDLER = "KafkaApis.handleFetchRequest"
WAIT_MS = 400
END, ABSENT = 1, 9
"""The offset after the only batch, and an unknown partition."""
LISTS_SINCE = 4


def _asked(
    topic: TargetTopic, version: int, *partitions: int, offset: int = END, absent: str = ""
) -> list[FetchTopic]:
    """Fetch partitions of a topic; before them one of an unknown topic."""
    rows = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=PLENTY)
        for number in partitions
    ]
    other = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=PLENTY)]
    if version >= IDS_SINCE:
        named = [
            FetchTopic(topic_id=NO_ID, partitions=other),
            FetchTopic(topic_id=topic.topic_id, partitions=rows),
        ]
    else:
        named = [
            FetchTopic(topic=absent, partitions=other),
            FetchTopic(topic=topic.name, partitions=rows),
        ]
    return named if absent else named[1:]


def _request(
    version: int,
    topics: list[FetchTopic],
    *,
    min_bytes: int = 1,
    wait_ms: int = 0,
    session_epoch: int = -1,
) -> FetchRequest:
    asked = FetchRequest(max_wait_ms=wait_ms, min_bytes=min_bytes, max_bytes=PLENTY, topics=topics)
    asked.session_epoch = session_epoch
    if version >= LISTS_SINCE:
        asked.isolation_level = READ_COMMITTED
    return asked


def _seconds_until_answered(
    target: Target, topic: TargetTopic, requests: dict[int, FetchRequest]
) -> dict[int, float]:
    """Send a request of each version on its own connection, so that all wait at the same time, and
    return the seconds that each waited.
    """
    waiting: dict[Peer, tuple[int, int, float]] = {}
    seconds: dict[int, float] = {}
    with ExitStack() as connections, selectors.DefaultSelector() as answers:
        for version, asked in requests.items():
            peer = connections.enter_context(target.peer(topic.leader))
            waiting[peer] = version, peer.send(asked, version), time.monotonic()
            answers.register(peer, selectors.EVENT_READ, peer)
        while waiting:
            answered = [key.data for key, _ in answers.select(ANSWER_SECONDS)]
            if not answered:
                raise PeerSilent("no answer")
            arrived = time.monotonic()
            for peer in answered:
                answers.unregister(peer)
                version, correlation_id, began = waiting.pop(peer)
                seconds[version] = arrived - began
                peer.receive(requests[version], version, correlation_id, FetchResponse)
    return seconds


def _answered(
    target: Target,
    topic: TargetTopic,
    version: int,
    topics: list[FetchTopic],
    *,
    min_bytes: int = 1,
    wait_ms: int = 0,
    session_epoch: int = -1,
) -> tuple[list[tuple[bool, list[tuple[int, int]]]], float, FetchResponse]:
    """Return (whether it is the topic, [(partition, error)]) for each topic, the seconds, and the
    answer.
    """
    asked = _request(
        version, topics, min_bytes=min_bytes, wait_ms=wait_ms, session_epoch=session_epoch
    )
    began = time.monotonic()
    with target.peer(topic.leader) as peer:
        answer = peer.ask(asked, version, FetchResponse)
    rows = [
        (
            found.topic_id == topic.topic_id if version >= IDS_SINCE else found.topic == topic.name,
            [(row.partition_index, int(row.error_code)) for row in found.partitions],
        )
        for found in answer.responses
    ]
    return rows, time.monotonic() - began, answer


@REQUIREMENTS.that(
    1,
    "unknown partitions follow all others in the response, whatever their position in the request",
    source=HANDLER,
)
def behind(target: Target) -> None:
    topic = filled_topic(target, batches=1)
    for version in target.versions(ApiKey.FETCH):
        asked = _asked(topic, version, ABSENT, 0, absent=target.fresh_name())
        unknown = int(
            ErrorCode.UNKNOWN_TOPIC_ID
            if version >= IDS_SINCE
            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        missing = (ABSENT, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        for epoch in (-1, FIRST_SESSION_EPOCH) if version >= SESSIONS_SINCE else (-1,):
            rows, _, _ = _answered(target, topic, version, asked, session_epoch=epoch)
            expected = [(True, [(0, 0)]), (False, [(0, unknown)]), (True, [missing])]
            expect_equal(rows, expected, f"version {version}: topics, partitions and errors")


@REQUIREMENTS.that(
    2,
    "unknown partitions do not complete a wait for min_bytes, and a fetch of them alone does not "
    "wait",
    source=f"{HANDLER}; ReplicaManager.fetchMessages",
)
def no_end_of_a_wait(target: Target) -> None:
    topic = filled_topic(target, batches=1)
    beside = {
        version: _request(
            version,
            _asked(topic, version, 0, ABSENT, absent=target.fresh_name()),
            wait_ms=WAIT_MS,
        )
        for version in target.versions(ApiKey.FETCH)
    }
    for version, seconds in _seconds_until_answered(target, topic, beside).items():
        expect(
            seconds >= WAIT_MS / 1000 * 0.9,
            f"version {version}: beside the end of a log answered after {seconds:.3f} s",
        )
    for version in beside:
        alone = _asked(topic, version, ABSENT, absent=target.fresh_name())
        _, seconds, _ = _answered(target, topic, version, alone, wait_ms=WAIT_MS * 20)
        expect(
            seconds < WAIT_MS / 1000 * 10,
            f"version {version}: alone answered after {seconds:.3f} s",
        )


@REQUIREMENTS.that(
    3,
    "unknown partitions have an empty list of aborted transactions with read_committed",
    source="FetchResponse.partitionResponse",
)
def empty_list(target: Target) -> None:
    topic = filled_topic(target, batches=1)
    for version in target.versions(ApiKey.FETCH, since=LISTS_SINCE):
        _, _, answer = _answered(
            target, topic, version, _asked(topic, version, ABSENT, absent=target.fresh_name())
        )
        lists = [row.aborted_transactions for found in answer.responses for row in found.partitions]
        expect_equal(lists, [[], []], f"version {version}: lists of aborted transactions")


@REQUIREMENTS.that(
    4,
    "a partition that is listed twice is read once, with the last of its rows",
    source="FetchRequest.fetchData",
)
def named_twice(target: Target) -> None:
    topic = filled_topic(target, batches=1)
    for version in target.versions(ApiKey.FETCH):
        twice = [*_asked(topic, version, 0, offset=END), *_asked(topic, version, 0, offset=0)]
        rows, _, answer = _answered(target, topic, version, twice)
        expect_equal(rows, [(True, [(0, 0)])], f"version {version}: topics, partitions and errors")
        size = len(answer.responses[0].partitions[0].records or b"")
        expect(size > 0, f"version {version}: the last place named is not read")
