"""Fetch (1) within a session: requests and responses contain only what has changed.

Source: KIP-227, kafka.server.FetchSession.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kraftsim.conformance.batches import batch, filled_topic, produce
from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.k01_fetch import IDS_SINCE, LONG_MS, PLENTY, SESSIONS_SINCE
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target, TargetTopic
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import (
    FINAL_SESSION_EPOCH,
    FIRST_SESSION_EPOCH,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from protocol.records.batches import split_batches

REQUIREMENTS = Requirements("fetch", 3, "Fetch sessions")
SESSION = "KIP-227; kafka.server.FetchSession"
LAST_SESSION_EPOCH = 2**31 - 1
Wish = tuple[TargetTopic, int]
Row = tuple[str, int, list[int]]
"""Topic name, error, and the base offsets of the batches."""


@dataclass(slots=True)
class FetchSessionUnderTest:
    """A session on one connection. `epoch` is that of the next request."""

    peer: Peer
    version: int
    number: int = 0
    epoch: int = FIRST_SESSION_EPOCH

    def ask(
        self,
        *wishes: Wish,
        forgotten: Sequence[TargetTopic] = (),
        epoch: int | None = None,
        partition_max_bytes: int = PLENTY,
    ) -> FetchResponse:
        """Fetch from these offsets, and store the session id of the response."""
        topics = [
            FetchTopic(
                topic=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    FetchPartition(fetch_offset=offset, partition_max_bytes=partition_max_bytes)
                ],
            )
            for topic, offset in wishes
        ]
        gone = [
            ForgottenTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[0])
            for topic in forgotten
        ]
        asked = FetchRequest(
            min_bytes=1,
            max_bytes=PLENTY,
            session_id=self.number,
            session_epoch=self.epoch if epoch is None else epoch,
            topics=topics,
            forgotten_topics_data=gone,
        )
        answer = self.peer.ask(asked, self.version, FetchResponse)
        if answer.error_code == ErrorCode.NONE:
            self.number = answer.session_id
            self.epoch = self.epoch + 1 if epoch is None else self.epoch
        return answer

    def rows(self, answer: FetchResponse, *topics: TargetTopic) -> list[Row]:
        """Return the rows of a response with their topic names."""
        expect_error(
            answer.error_code, ErrorCode.NONE, f"version {self.version}: the top-level error"
        )
        called = {
            (topic.topic_id if self.version >= IDS_SINCE else topic.name): topic.name
            for topic in topics
        }
        return [
            (
                called[found.topic_id if self.version >= IDS_SINCE else found.topic],
                row.error_code,
                first_offsets(bytes(row.records or b"")),
            )
            for found in answer.responses
            for row in found.partitions
        ]


def first_offsets(records: bytes) -> list[int]:
    """Return the base offsets of the batches."""
    return [found.base_offset for found in split_batches(records)]


def _versions(target: Target) -> list[int]:
    return list(target.versions(ApiKey.FETCH, since=SESSIONS_SINCE))


@REQUIREMENTS.that(1, "a request for a session creates one, with a full response", source=SESSION)
def opened(target: Target) -> None:
    topic = filled_topic(target, batches=2)
    for version in _versions(target):
        with target.peer(topic.leader) as peer:
            session = FetchSessionUnderTest(peer, version)
            expect_equal(
                session.rows(session.ask((topic, 0)), topic),
                [(topic.name, 0, [0, 1])],
                f"version {version}: rows of the response",
            )
            expect(session.number > 0, f"version {version}: session {session.number}")


@REQUIREMENTS.that(
    2,
    "within a session only changed partitions are returned: new records, or a new high watermark",
    source=SESSION,
)
def only_news(target: Target) -> None:
    version = target.newest(ApiKey.FETCH)
    one = filled_topic(target, batches=1)
    with target.peer(one.leader) as peer:
        other = _beside(target, one)
        session = FetchSessionUnderTest(peer, version)
        session.ask((one, 1), (other, 1))
        expect_equal(session.rows(session.ask(), one, other), [], "nothing has changed")
        produce(peer, other.name, batch(1))
        expect_equal(
            session.rows(session.ask(), one, other),
            [(other.name, 0, [1])],
            "one partition has grown",
        )
        expect_equal(
            session.rows(session.ask(), one, other),
            [(other.name, 0, [1])],
            "a partition with an unchanged fetch offset is returned again",
        )
        expect_equal(
            session.rows(session.ask((other, 2)), one, other),
            [],
            "no old records after the offset has advanced",
        )
        produce(peer, one.name, batch(1))
        expect_equal(
            session.rows(session.ask((one, 2)), one, other),
            [(one.name, 0, [])],
            "a high watermark has moved",
        )


@REQUIREMENTS.that(
    3,
    "a partition added to a session is returned at once, a forgotten one no longer",
    source=SESSION,
)
def added_and_forgotten(target: Target) -> None:
    for version in _versions(target):
        one = filled_topic(target, batches=1)
        other = _beside(target, one)
        with target.peer(one.leader) as peer:
            session = FetchSessionUnderTest(peer, version)
            session.ask((one, 1))
            returned = session.rows(session.ask((other, 1)), one, other)
            expect_equal(
                returned, [(other.name, 0, [])], f"version {version}: a partition has been added"
            )
            produce(peer, one.name, batch(1))
            produce(peer, other.name, batch(1))
            returned = session.rows(session.ask(forgotten=[other]), one, other)
            expect_equal(
                returned,
                [(one.name, 0, [1])],
                f"version {version}: the other partition was forgotten",
            )


@REQUIREMENTS.that(
    4,
    "a session epoch other than the next one returns INVALID_FETCH_SESSION_EPOCH, and the "
    "session stays usable",
    source=SESSION,
)
def wrong_epoch(target: Target) -> None:
    topic = filled_topic(target, batches=1)
    for version in _versions(target):
        with target.peer(topic.leader) as peer:
            session = FetchSessionUnderTest(peer, version)
            session.ask((topic, 1))
            for epoch in (2, 7, LAST_SESSION_EPOCH):
                answer = session.ask((topic, 1), epoch=epoch)
                expect_error(
                    answer.error_code,
                    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                    f"version {version}, epoch {epoch}",
                )
                expect_equal(
                    (answer.session_id, answer.responses),
                    (0, []),
                    f"version {version}, epoch {epoch}: session, topics",
                )
            expect_equal(
                session.rows(session.ask(), topic), [], f"version {version}: the right epoch"
            )
            answer = session.ask(epoch=1)
            expect_error(
                answer.error_code,
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"version {version}, an epoch once more",
            )


@REQUIREMENTS.that(
    5,
    "a session ends with its final epoch, or when another session is created on it",
    source=SESSION,
)
def closed(target: Target) -> None:
    topic = filled_topic(target, batches=1)
    for version in _versions(target):
        for epoch in (FINAL_SESSION_EPOCH, FIRST_SESSION_EPOCH):
            with target.peer(topic.leader) as peer:
                session = FetchSessionUnderTest(peer, version)
                session.ask((topic, 0))
                number = session.number
                answer = session.ask((topic, 0), epoch=epoch)
                expect_equal(
                    session.rows(answer, topic),
                    [(topic.name, 0, [0])],
                    f"version {version}, epoch {epoch}: rows of the response",
                )
                expect_equal(
                    answer.session_id > 0,
                    epoch == FIRST_SESSION_EPOCH,
                    f"version {version}, epoch {epoch}: there is a session",
                )
                session.number = number
                error = session.ask(epoch=1).error_code
                expect_error(
                    error,
                    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                    f"version {version}, after epoch {epoch}",
                )


@REQUIREMENTS.that(
    6,
    "a session with topic names cannot continue with topic ids, nor vice versa: "
    "FETCH_SESSION_TOPIC_ID_ERROR",
    source="KIP-516",
)
def names_and_ids(target: Target) -> None:
    topic = filled_topic(target, batches=1)
    newest = target.newest(ApiKey.FETCH)
    by_name = target.newest(ApiKey.FETCH, until=IDS_SINCE - 1)
    for first, then in ((by_name, newest), (newest, by_name)) if newest >= IDS_SINCE else ():
        with target.peer(topic.leader) as peer:
            session = FetchSessionUnderTest(peer, first)
            session.ask((topic, 1))
            session.version = then
            answer = session.ask()
            expect_error(
                answer.error_code,
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                f"version {then} after {first}",
            )
            expect_equal(
                (answer.session_id, answer.responses),
                (0, []),
                f"version {then} after {first}: session, topics",
            )


@REQUIREMENTS.that(7, "an error is returned in each response until it is resolved", source=SESSION)
def errors_are_repeated(target: Target) -> None:
    version = target.newest(ApiKey.FETCH)
    topic = filled_topic(target, batches=2)
    with target.peer(topic.leader) as peer:
        session = FetchSessionUnderTest(peer, version)
        error = ErrorCode.OFFSET_OUT_OF_RANGE
        for which in ("first", "second", "third"):
            answer = session.ask((topic, 1000)) if which == "first" else session.ask()
            expect_equal(
                session.rows(answer, topic), [(topic.name, error, [])], f"the {which} answer"
            )
        expect_equal(
            session.rows(session.ask((topic, 2)), topic),
            [(topic.name, 0, [])],
            "the answer once all is well",
        )
        expect_equal(session.rows(session.ask(), topic), [], "the answer after that")


@REQUIREMENTS.that(
    8, "a session without partitions is closed: its last response has no session id", source=SESSION
)
def emptied(target: Target) -> None:
    topic = filled_topic(target, batches=1)
    for version in _versions(target):
        with target.peer(topic.leader) as peer:
            session = FetchSessionUnderTest(peer, version)
            session.ask((topic, 1))
            number = session.number
            answer = session.ask(forgotten=[topic])
            expect_equal(
                (answer.error_code, answer.session_id, answer.responses),
                (0, 0, []),
                f"version {version}: error, session, topics",
            )
            session.number = number
            expect_error(
                session.ask().error_code,
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"version {version}, one request later",
            )


@REQUIREMENTS.that(
    9,
    "partitions that returned records move to the end of the next response",
    source="FetchSession.PartitionIterator",
)
def fair(target: Target) -> None:
    version = target.newest(ApiKey.FETCH)
    one = filled_topic(target, batches=1)
    other = _beside(target, one)
    with target.peer(one.leader) as peer:
        session = FetchSessionUnderTest(peer, version)
        session.ask((one, 0), (other, 1))
        produce(peer, one.name, batch(1))
        expect_equal(
            [row[0] for row in session.rows(session.ask(), one, other)],
            [one.name],
            "one has records",
        )
        produce(peer, other.name, batch(1))
        expect_equal(
            [row[0] for row in session.rows(session.ask(), one, other)],
            [other.name, one.name],
            "the order after that",
        )


@REQUIREMENTS.that(
    10,
    "a session is independent of connections, and min_bytes applies to the whole session",
    source=SESSION,
)
def beyond_connections(target: Target) -> None:
    version = target.newest(ApiKey.FETCH)
    topic = filled_topic(target, batches=1)
    with target.peer(topic.leader) as peer:
        session = FetchSessionUnderTest(peer, version)
        session.ask((topic, 1))
    with target.peer(topic.leader) as reader, target.peer(topic.leader) as writer:
        asked = FetchRequest(
            max_wait_ms=LONG_MS * 5,
            min_bytes=1,
            max_bytes=PLENTY,
            session_id=session.number,
            session_epoch=1,
        )
        correlation_id = reader.send(asked, version)
        expect(reader.is_silent(0.2), "a fetch at the end is answered at once")
        produce(writer, topic.name, batch(2))
        answer = reader.receive(asked, version, correlation_id, FetchResponse)
        expect_equal(session.rows(answer, topic), [(topic.name, 0, [1])], "rows of the response")


def _beside(target: Target, topic: TargetTopic) -> TargetTopic:
    """Return another topic with one batch whose leader is the same broker."""
    other = filled_topic(target, batches=1)
    while other.leader != topic.leader:
        other = filled_topic(target, batches=1)
    return other
