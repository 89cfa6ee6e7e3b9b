"""Incremental fetch sessions: a client sends changed partitions only, and receives changed
partitions only.

Source: KIP-227, KAFKA-9401 (shards), kafka.server.FetchSession,
org.apache.kafka.clients.FetchSessionHandler.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from msgspec import Struct

from kraftsim.metadata.rules_topic_table import RandomSource
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
"""The sessions are distributed over this many caches, each with its share of slots and of the id
range.
"""
INT32_MAX: Final = 2**31 - 1
NO_OFFSET: Final = -1
Key = tuple[str | bytes, int]
"""Topic name or id, and partition number."""


# --------------------------------------------------------------------------------------------------
# The sessions of a broker
#
# Their number is limited. A new one evicts a session that was idle for two minutes, or one with
# lower priority: followers evict consumers, larger sessions evict smaller ones.


def next_session_epoch(epoch: int) -> int:
    """Return the epoch of the next request: it never wraps to that of a full fetch request."""
    return 1 if epoch == INT32_MAX else epoch + 1


@dataclass(slots=True)
class CachedPartition:
    """The requested position of a partition, and the offsets last returned to the client."""

    topic: str
    topic_id: bytes
    asked: FetchPartition
    high_watermark: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET

    def has_changes(self, found: PartitionData) -> bool:
        """Return whether the partition has changes for the client, and store the returned
        offsets.
        """
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
    """One session. `epoch` is that of its next request; followers are privileged."""

    __slots__ = (
        "created_ms",
        "epoch",
        "is_privileged",
        "last_used_ms",
        "number",
        "partitions",
        "uses_topic_ids",
    )

    def __init__(
        self, number: int, *, is_privileged: bool, uses_topic_ids: bool, now_ms: int
    ) -> None:
        self.number = number
        self.is_privileged = is_privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.last_used_ms = now_ms
        self.epoch = next_session_epoch(FIRST_SESSION_EPOCH)
        self.partitions: dict[Key, CachedPartition] = {}

    @property
    def worth(self) -> tuple[bool, int, int]:
        """The eviction priority: followers' sessions above consumers', then by size."""
        return self.is_privileged, len(self.partitions), self.number

    def key(self, topic: str, topic_id: bytes, partition: int) -> Key:
        """Return the key of a partition in this session."""
        return (topic_id if self.uses_topic_ids else topic), partition

    def update(self, request: FetchRequest) -> None:
        """Add, update and remove partitions as the request specifies."""
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
        """Return all partitions in the order in which they are to be read."""
        topics: list[FetchTopic] = []
        last: str | bytes | None = None
        for (name, _), cached in self.partitions.items():
            if name != last:
                topics.append(FetchTopic(topic=cached.topic, topic_id=cached.topic_id))
                last = name
            topics[-1].partitions.append(cached.asked)
        return topics

    def news(self, found: Iterable[FetchableTopicResponse]) -> list[FetchableTopicResponse]:
        """Return the changed partitions.

        Those with records move to the end of the session, so that all get their turn.
        """
        changed = []
        for topic in found:
            rows = [row for row in topic.partitions if self._has_changes(topic, row)]
            if rows:
                changed.append(
                    FetchableTopicResponse(
                        topic=topic.topic, topic_id=topic.topic_id, partitions=rows
                    )
                )
        return changed

    def _has_changes(self, topic: FetchableTopicResponse, row: PartitionData) -> bool:
        key = self.key(topic.topic, topic.topic_id, row.partition_index)
        cached = self.partitions.get(key)
        if cached is None or not cached.has_changes(row):
            return False
        if len(row.records or b""):
            self.partitions[key] = self.partitions.pop(key)
        return True


class SessionShard:
    """One cache, for sessions with ids of one range."""

    def __init__(self, places: int, ids: range) -> None:
        self._places = places
        self._ids = ids
        self.sessions: dict[int, FetchSession] = {}

    def open(
        self,
        size: int,
        rng: RandomSource,
        *,
        is_privileged: bool,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> FetchSession | None:
        """Return a new session, or None if the cache is full."""
        if len(self.sessions) >= self._places and not self._evict((is_privileged, size, 0), now_ms):
            return None
        number = self._ids[rng.randrange(len(self._ids))]
        while number in self.sessions:
            number = self._ids[rng.randrange(len(self._ids))]
        opened = self.sessions[number] = FetchSession(
            number, is_privileged=is_privileged, uses_topic_ids=uses_topic_ids, now_ms=now_ms
        )
        return opened

    def _evict(self, newcomer: tuple[bool, int, int], now_ms: int) -> bool:
        """Evict the oldest idle session, else the lowest one that the new session has priority
        over.
        """
        stalest = min(
            self.sessions.values(),
            key=lambda session: (session.last_used_ms, session.number),
            default=None,
        )
        if stalest is None:
            return False
        if now_ms - stalest.last_used_ms <= EVICTABLE_AFTER_MS:
            open_to = [
                session
                for session in self.sessions.values()
                if _may_be_put_out(session, by_privileged=newcomer[0])
            ]
            stalest = min(open_to, key=lambda session: session.worth, default=None)
            if stalest is None or newcomer < stalest.worth:
                return False
        del self.sessions[stalest.number]
        return True


class FetchSessions:
    """All sessions of a broker, at most `places`."""

    def __init__(self, places: int, rng: RandomSource, shard_count: int = SHARDS) -> None:
        self._rng = rng
        self._range = INT32_MAX // shard_count
        self._shards = [
            SessionShard(
                places // shard_count,
                range(max(1, number * self._range), (number + 1) * self._range),
            )
            for number in range(shard_count)
        ]
        self._next_shard = 0

    def __len__(self) -> int:
        return sum(len(shard.sessions) for shard in self._shards)

    def begin(
        self, request: FetchRequest, version: int, *, is_follower: bool, now_ms: int
    ) -> "FetchContext | ErrorCode":
        """Return the context of a request, with all its partitions; or the error if it does not
        match its session.
        """
        uses_topic_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS
        if request.session_epoch in (FINAL_SESSION_EPOCH, FIRST_SESSION_EPOCH):
            if request.session_id != NO_SESSION_ID:
                self._close(request.session_id)
            asked = named_once(request.topics)
            if request.session_epoch == FINAL_SESSION_EPOCH:
                return FetchContext(asked)

            def opened(size: int) -> FetchSession | None:
                return self._open(
                    size, is_privileged=is_follower, uses_topic_ids=uses_topic_ids, now_ms=now_ms
                )

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

    def _open(
        self, size: int, *, is_privileged: bool, uses_topic_ids: bool, now_ms: int
    ) -> FetchSession | None:
        shard = self._shards[self._next_shard]
        self._next_shard = (self._next_shard + 1) % len(self._shards)
        return shard.open(
            size,
            self._rng,
            is_privileged=is_privileged,
            uses_topic_ids=uses_topic_ids,
            now_ms=now_ms,
        )

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
    """A sessionless request: `topics` are its partitions."""

    def __init__(self, topics: list[FetchTopic]) -> None:
        self.topics = topics

    def finish(self, response: FetchResponse) -> FetchResponse:
        """Build the response to the client: adjacent partitions of one topic are joined."""
        response.responses = joined(response.responses)
        return response

    def throttled(self) -> FetchResponse:
        """Return an empty response, for a throttled client."""
        return FetchResponse()


class OpeningContext(FetchContext):
    """A full request that creates a session if there is room."""

    def __init__(
        self, topics: list[FetchTopic], opened: "Callable[[int], FetchSession | None]"
    ) -> None:
        super().__init__(topics)
        self._opened = opened

    def finish(self, response: FetchResponse) -> FetchResponse:
        """Return all partitions, and store them in the session."""
        session = self._opened(sum(len(topic.partitions) for topic in response.responses))
        if session is not None:
            self._remember(session, response)
            response.session_id = session.number
        return super().finish(response)

    def _remember(self, session: FetchSession, response: FetchResponse) -> None:
        """Store the partitions in the order of the response."""
        wishes = {
            session.key(topic.topic, topic.topic_id, wish.partition): wish
            for topic in self.topics
            for wish in topic.partitions
        }
        for found in response.responses:
            for row in found.partitions:
                key = session.key(found.topic, found.topic_id, row.partition_index)
                session.partitions[key] = CachedPartition(
                    found.topic,
                    found.topic_id,
                    wishes[key],
                    row.high_watermark,
                    row.log_start_offset,
                )


class IncrementalContext(FetchContext):
    """An incremental request in a session."""

    def __init__(self, session: FetchSession) -> None:
        super().__init__(session.topics())
        self._session = session
        self._epoch = session.epoch

    def finish(self, response: FetchResponse) -> FetchResponse:
        """Return the changed partitions; none if the session has handled another request
        meanwhile.
        """
        if self._session.epoch != self._epoch:
            return FetchResponse(
                error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=self._session.number
            )
        response.responses = self._session.news(response.responses)
        response.session_id = self._session.number
        return super().finish(response)

    def throttled(self) -> FetchResponse:
        """Return an empty response, and leave the session unchanged."""
        error = (
            ErrorCode.NONE
            if self._session.epoch == self._epoch
            else ErrorCode.INVALID_FETCH_SESSION_EPOCH
        )
        return FetchResponse(error_code=error, session_id=self._session.number)


def named_once(topics: list[FetchTopic]) -> list[FetchTopic]:
    """Return the requested partitions without duplicates: at the position of the first, with the
    values of the last.

    Source: FetchRequest.fetchData (LinkedHashMap).
    """
    wishes: dict[tuple[str, bytes, int], FetchPartition] = {}
    count = 0
    for topic in topics:
        count += len(topic.partitions)
        wishes.update(
            ((topic.topic, topic.topic_id, wish.partition), wish) for wish in topic.partitions
        )
    if len(wishes) == count:
        return topics
    found: list[FetchTopic] = []
    for (name, topic_id, _), wish in wishes.items():
        if not found or (found[-1].topic, found[-1].topic_id) != (name, topic_id):
            found.append(FetchTopic(topic=name, topic_id=topic_id))
        found[-1].partitions.append(wish)
    return found


def joined(rows: Iterable[FetchableTopicResponse]) -> list[FetchableTopicResponse]:
    """Return response rows with adjacent ones of a topic joined.   Source: FetchResponse.of."""
    found: list[FetchableTopicResponse] = []
    for (name, topic_id), neighbours in groupby(rows, key=lambda row: (row.topic, row.topic_id)):
        first, *others = neighbours
        if others:
            partitions = [partition for row in (first, *others) for partition in row.partitions]
            first = FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=partitions)
        found.append(first)
    return found


def _may_be_put_out(session: FetchSession, *, by_privileged: bool) -> bool:
    """For two minutes only a session with priority may evict it."""
    is_settled = session.last_used_ms - session.created_ms > EVICTABLE_AFTER_MS
    return is_settled or (by_privileged and not session.is_privileged)


# --------------------------------------------------------------------------------------------------
# The client's side: the next request, and the handling of the response

ReadKey = tuple[bytes, int]
"""Topic id, and partition number."""


class FetchPlan(Struct, frozen=True):
    """The partitions of a request: all of them, or the added, changed and removed ones."""

    session_id: int
    session_epoch: int
    asked: Mapping[ReadKey, FetchPartition]
    forgotten: tuple[ReadKey, ...] = ()

    @property
    def is_full(self) -> bool:
        """Return whether it is a full request, which creates a session."""
        return self.session_epoch == FIRST_SESSION_EPOCH

    def forgotten_by_name(self, names: Mapping[bytes, str]) -> tuple[ReadKey, ...]:
        """Return the removed partitions for a leader that identifies topics by name.

        If a topic got another id, its partitions are requested with the new one and removed with
        the old one: by name these are the same, and the leader would remove what was just
        requested.
        Source: FetchRequest.Builder, whose `replaced` is sent from version 13 on.
        """
        asked = {(names[topic_id], partition) for topic_id, partition in self.asked}
        return tuple(key for key in self.forgotten if (names[key[0]], key[1]) not in asked)


class FetchSessionClient:
    """The session with one leader. `plan` and its result alternate."""

    def __init__(self) -> None:
        self._id = NO_SESSION_ID
        self._epoch = FIRST_SESSION_EPOCH
        self._known: dict[ReadKey, FetchPartition] = {}

    def plan(self, wanted: Mapping[ReadKey, FetchPartition]) -> FetchPlan:
        """Return the request for exactly these partitions."""
        if self._epoch == FIRST_SESSION_EPOCH:
            self._known = dict(wanted)
            return FetchPlan(self._id, self._epoch, wanted)
        known = self._known
        changed = {
            key: asked
            for key, asked in wanted.items()
            if (before := known.get(key)) is not asked and before != asked
        }
        forgotten = tuple(key for key in known if key not in wanted)
        self._known = dict(wanted)
        return FetchPlan(self._id, self._epoch, changed, forgotten)

    def on_answer(self, error: ErrorCode, session_id: int, returned: Iterable[ReadKey]) -> bool:
        """Handle a response, and return whether its partitions are valid."""
        if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._forget()
            return False
        if error is not ErrorCode.NONE:
            self.on_failure()
            return False
        is_full = self._epoch == FIRST_SESSION_EPOCH
        keys = set(returned)
        fits = keys == self._known.keys() if is_full else keys <= self._known.keys()
        if not fits:
            self._forget() if is_full else self.on_failure()
        elif session_id == NO_SESSION_ID:
            self._forget()
        else:
            self._id, self._epoch = session_id, next_session_epoch(self._epoch)
        return fits

    def on_failure(self) -> None:
        """No response, or an invalid one: close the session with the next request, and create
        another one.
        """
        self._epoch = FIRST_SESSION_EPOCH

    def _forget(self) -> None:
        """The leader does not know the session."""
        self._id, self._epoch = NO_SESSION_ID, FIRST_SESSION_EPOCH
