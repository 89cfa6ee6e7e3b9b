"""The fetch sessions that a broker keeps: what a reader asked for last, so that it names only what changes, and hears only of what has changed.

The places are few. A newcomer takes the place of a session that nobody has used for two minutes, or of one that is worth less than itself: of a
consumer's by a follower, of a smaller one by a greater.

Source: KIP-227, KAFKA-9401 (shards), kafka.server.FetchSession.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from kraftsim.core.metadata.replica_placement import Chance
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import (
    FINAL_SESSION_EPOCH,
    FIRST_SESSION_EPOCH,
    NO_SESSION_ID,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
EVICTABLE_AFTER_MS: Final = 120_000
SHARDS: Final = 8
"""Sessions are dealt to so many caches in turn, each with its share of the places and of the ids."""
INT32_MAX: Final = 2**31 - 1
NO_OFFSET: Final = -1
Key = tuple[str | bytes, int]
"""Name or id of a topic, and the number of a partition."""


def next_session_epoch(epoch: int) -> int:
    """Return the epoch of the request after the one with this epoch: it never comes back to that which opens a session."""
    return 1 if epoch == INT32_MAX else epoch + 1


@dataclass(slots=True)
class CachedPartition:
    """What a reader asked of a partition, and what it was told last of its offsets."""

    topic: str
    topic_id: bytes
    asked: FetchPartition
    high_watermark: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET

    def must_tell(self, found: PartitionData) -> bool:
        """Tell whether there is anything in it that the reader does not know, and remember what it is told."""
        has_news = bool(
            len(found.records or b"")
            or self.high_watermark != found.high_watermark
            or self.log_start_offset != found.log_start_offset
            or found.error_code
            or found.preferred_read_replica >= 0
            or found.diverging_epoch.end_offset >= 0
        )
        self.high_watermark = NO_OFFSET if found.error_code else found.high_watermark
        self.log_start_offset = found.log_start_offset
        return has_news


class FetchSession:
    """One reader's session. `epoch` is that of its next request; followers are privileged."""

    __slots__ = ("created_ms", "epoch", "is_privileged", "last_used_ms", "number", "partitions", "uses_topic_ids")

    def __init__(self, number: int, *, is_privileged: bool, uses_topic_ids: bool, now_ms: int) -> None:
        self.number = number
        self.is_privileged = is_privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.last_used_ms = now_ms
        self.epoch = next_session_epoch(FIRST_SESSION_EPOCH)
        self.partitions: dict[Key, CachedPartition] = {}

    @property
    def worth(self) -> tuple[bool, int, int]:
        """Followers' sessions are worth more than consumers', then greater ones more than smaller ones."""
        return self.is_privileged, len(self.partitions), self.number

    def key(self, topic: str, topic_id: bytes, partition: int) -> Key:
        """Return what a partition is known by here."""
        return (topic_id if self.uses_topic_ids else topic), partition

    def update(self, request: FetchRequest) -> None:
        """Take in what a request adds and changes, and forget what it names as forgotten."""
        for topic in request.topics:
            for asked in topic.partitions:
                key = self.key(topic.topic, topic.topic_id, asked.partition)
                known = self.partitions.get(key)
                if known is None:
                    self.partitions[key] = CachedPartition(topic.topic, topic.topic_id, asked)
                else:
                    known.asked = asked
        for forgotten in request.forgotten_topics_data:
            for number in forgotten.partitions:
                self.partitions.pop(self.key(forgotten.topic, forgotten.topic_id, number), None)

    def topics(self) -> list[FetchTopic]:
        """Return all that is asked for, in the order in which it is to be read."""
        topics: list[FetchTopic] = []
        last: str | bytes | None = None
        for (name, _), cached in self.partitions.items():
            if name != last:
                topics.append(FetchTopic(topic=cached.topic, topic_id=cached.topic_id))
                last = name
            topics[-1].partitions.append(cached.asked)
        return topics

    def news(self, found: Iterable[FetchableTopicResponse]) -> list[FetchableTopicResponse]:
        """Return what the reader does not know yet. Whoever got records comes last the next time, so that everybody gets some."""
        told = []
        for topic in found:
            rows = [row for row in topic.partitions if self._must_tell(topic, row)]
            if rows:
                told.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=rows))
        return told

    def _must_tell(self, topic: FetchableTopicResponse, row: PartitionData) -> bool:
        key = self.key(topic.topic, topic.topic_id, row.partition_index)
        cached = self.partitions.get(key)
        if cached is None or not cached.must_tell(row):
            return False
        if len(row.records or b""):
            self.partitions[key] = self.partitions.pop(key)
        return True


class SessionShard:
    """Some of the places, for sessions with ids of one range."""

    def __init__(self, places: int, ids: range) -> None:
        self._places = places
        self._ids = ids
        self.sessions: dict[int, FetchSession] = {}

    def open(self, size: int, chance: Chance, *, is_privileged: bool, uses_topic_ids: bool, now_ms: int) -> FetchSession | None:
        """Return a new session, or None if there is no place for it."""
        if len(self.sessions) >= self._places and not self._evict((is_privileged, size, 0), now_ms):
            return None
        number = self._ids[chance.randrange(len(self._ids))]
        while number in self.sessions:
            number = self._ids[chance.randrange(len(self._ids))]
        opened = self.sessions[number] = FetchSession(number, is_privileged=is_privileged, uses_topic_ids=uses_topic_ids, now_ms=now_ms)
        return opened

    def _evict(self, newcomer: tuple[bool, int, int], now_ms: int) -> bool:
        """Make room: for the oldest that nobody uses, else for the least one that may be put out by this newcomer."""
        stalest = min(self.sessions.values(), key=lambda session: (session.last_used_ms, session.number), default=None)
        if stalest is None:
            return False
        if now_ms - stalest.last_used_ms <= EVICTABLE_AFTER_MS:
            open_to = [session for session in self.sessions.values() if _may_be_put_out(session, by_privileged=newcomer[0])]
            stalest = min(open_to, key=lambda session: session.worth, default=None)
            if stalest is None or newcomer < stalest.worth:
                return False
        del self.sessions[stalest.number]
        return True


class FetchSessions:
    """All sessions of a broker, `places` at most."""

    def __init__(self, places: int, chance: Chance, shard_count: int = SHARDS) -> None:
        self._chance = chance
        self._range = INT32_MAX // shard_count
        self._shards = [
            SessionShard(places // shard_count, range(max(1, number * self._range), (number + 1) * self._range)) for number in range(shard_count)
        ]
        self._next_shard = 0

    def __len__(self) -> int:
        return sum(len(shard.sessions) for shard in self._shards)

    def begin(self, request: FetchRequest, version: int, *, is_follower: bool, now_ms: int) -> "FetchContext | ErrorCode":
        """Return what a request asks for, all in all; or the error if it does not fit the session that it names."""
        uses_topic_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS
        if request.session_epoch in (FINAL_SESSION_EPOCH, FIRST_SESSION_EPOCH):
            if request.session_id != NO_SESSION_ID:
                self._close(request.session_id)
            asked = named_once(request.topics)
            if request.session_epoch == FINAL_SESSION_EPOCH:
                return FetchContext(asked)

            def opened(size: int) -> FetchSession | None:
                return self._open(size, is_privileged=is_follower, uses_topic_ids=uses_topic_ids, now_ms=now_ms)

            return OpeningContext(asked, opened)
        session = self._find(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.update(request)
        if not session.partitions:
            self._close(session.number)
            return FetchContext(named_once(request.topics))
        session.last_used_ms = now_ms
        session.epoch = next_session_epoch(session.epoch)
        return IncrementalContext(session)

    def _open(self, size: int, *, is_privileged: bool, uses_topic_ids: bool, now_ms: int) -> FetchSession | None:
        shard = self._shards[self._next_shard]
        self._next_shard = (self._next_shard + 1) % len(self._shards)
        return shard.open(size, self._chance, is_privileged=is_privileged, uses_topic_ids=uses_topic_ids, now_ms=now_ms)

    def _shard(self, number: int) -> SessionShard | None:
        place = number // self._range
        return self._shards[place] if 0 <= place < len(self._shards) else None

    def _find(self, number: int) -> FetchSession | None:
        shard = self._shard(number)
        return None if shard is None else shard.sessions.get(number)

    def _close(self, number: int) -> None:
        shard = self._shard(number)
        if shard is not None:
            shard.sessions.pop(number, None)


class FetchContext:
    """A request outside of any session: `topics` are what it asks for."""

    def __init__(self, topics: list[FetchTopic]) -> None:
        self.topics = topics

    def finish(self, response: FetchResponse) -> FetchResponse:
        """Make of everything that was read what the reader is told: neighbours of one topic stand together."""
        response.responses = joined(response.responses)
        return response

    def throttled(self) -> FetchResponse:
        """Return an answer that tells nothing, for a reader who has had too much."""
        return FetchResponse()


class OpeningContext(FetchContext):
    """A request that opens a session if there is room for one."""

    def __init__(self, topics: list[FetchTopic], opened: "Callable[[int], FetchSession | None]") -> None:
        super().__init__(topics)
        self._opened = opened

    def finish(self, response: FetchResponse) -> FetchResponse:
        """Tell everything, and remember it."""
        session = self._opened(sum(len(topic.partitions) for topic in response.responses))
        if session is not None:
            self._remember(session, response)
            response.session_id = session.number
        return super().finish(response)

    def _remember(self, session: FetchSession, response: FetchResponse) -> None:
        """Let the session have the partitions in the order of the answer."""
        wishes = {session.key(topic.topic, topic.topic_id, wish.partition): wish for topic in self.topics for wish in topic.partitions}
        for found in response.responses:
            for row in found.partitions:
                key = session.key(found.topic, found.topic_id, row.partition_index)
                session.partitions[key] = CachedPartition(found.topic, found.topic_id, wishes[key], row.high_watermark, row.log_start_offset)


class IncrementalContext(FetchContext):
    """A request within a session."""

    def __init__(self, session: FetchSession) -> None:
        super().__init__(session.topics())
        self._session = session
        self._epoch = session.epoch

    def finish(self, response: FetchResponse) -> FetchResponse:
        """Tell what is new; nothing, if the session has gone on with another request meanwhile."""
        if self._session.epoch != self._epoch:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=self._session.number)
        response.responses = self._session.news(response.responses)
        response.session_id = self._session.number
        return super().finish(response)

    def throttled(self) -> FetchResponse:
        """Return an answer that tells nothing, and remembers nothing as told."""
        error = ErrorCode.NONE if self._session.epoch == self._epoch else ErrorCode.INVALID_FETCH_SESSION_EPOCH
        return FetchResponse(error_code=error, session_id=self._session.number)


def named_once(topics: list[FetchTopic]) -> list[FetchTopic]:
    """Return what is asked for with each partition once: in its first place, as it was asked for last.

    Source: FetchRequest.fetchData (LinkedHashMap).
    """
    wishes: dict[tuple[str, bytes, int], FetchPartition] = {}
    count = 0
    for topic in topics:
        count += len(topic.partitions)
        wishes.update(((topic.topic, topic.topic_id, wish.partition), wish) for wish in topic.partitions)
    if len(wishes) == count:
        return topics
    found: list[FetchTopic] = []
    for (name, topic_id, _), wish in wishes.items():
        if not found or (found[-1].topic, found[-1].topic_id) != (name, topic_id):
            found.append(FetchTopic(topic=name, topic_id=topic_id))
        found[-1].partitions.append(wish)
    return found


def joined(rows: Iterable[FetchableTopicResponse]) -> list[FetchableTopicResponse]:
    """Return rows of an answer with neighbours of one topic as one.   Source: FetchResponse.of."""
    found: list[FetchableTopicResponse] = []
    for (name, topic_id), neighbours in groupby(rows, key=lambda row: (row.topic, row.topic_id)):
        first, *others = neighbours
        if others:
            partitions = [partition for row in (first, *others) for partition in row.partitions]
            first = FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=partitions)
        found.append(first)
    return found


def _may_be_put_out(session: FetchSession, *, by_privileged: bool) -> bool:
    """A session has two minutes in which only those that have precedence may put it out."""
    is_settled = session.last_used_ms - session.created_ms > EVICTABLE_AFTER_MS
    return is_settled or (by_privileged and not session.is_privileged)
