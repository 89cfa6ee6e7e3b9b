"""Share sessions: which partitions a member fetches from this broker, so that its requests name
only changes.

A session belongs to a group and a member, and to the connection on which it was opened: when that
is lost, the session ends, and what the member has acquired is released. Requests count in the
session's epoch: 0 opens it, -1 closes it, and any other must be the one expected. ShareFetch and
ShareAcknowledge count in the same session.

Source: KIP-932; org.apache.kafka.server.share.session.{ShareSession, ShareSessionCache},
org.apache.kafka.server.share.context.{ShareSessionContext, FinalContext},
kafka.server.share.SharePartitionManager.newContext.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from kraftsim.core.decision import Refusal
from protocol.errors import ErrorCode
from protocol.messages.k78_share_fetch import (
    FINAL_SESSION_EPOCH,
    FIRST_SESSION_EPOCH,
    PartitionData,
)

INT32_MAX: Final = 2**31 - 1


class TopicIdAndPartition(NamedTuple):
    """A partition of a topic that is known by its id (16 bytes)."""

    topic_id: bytes
    partition: int


class SharedTopicPartition(NamedTuple):
    """The same with the topic's name; None: the id was unknown when the session got it."""

    id: TopicIdAndPartition
    topic: str | None


class SessionKey(NamedTuple):
    """A session is that of one member of one group."""

    group_id: str
    member_id: str


class CachedShareSession:
    """One session. `epoch` is that of the next request."""

    __slots__ = ("connection", "epoch", "key", "partitions")

    def __init__(
        self, key: SessionKey, connection: int, partitions: Iterable[SharedTopicPartition]
    ) -> None:
        self.key = key
        self.connection = connection
        self.epoch = next_share_epoch(FIRST_SESSION_EPOCH)
        self.partitions: dict[TopicIdAndPartition, _CachedShare] = {
            each.id: _CachedShare(each.topic, is_owed=False) for each in partitions
        }

    def update(
        self, added: Iterable[SharedTopicPartition], removed: Iterable[TopicIdAndPartition]
    ) -> None:
        """Apply the changes of a request; a partition that is added gets a row in the response."""
        for each in added:
            if each.id not in self.partitions:
                self.partitions[each.id] = _CachedShare(each.topic, is_owed=True)
        for key in removed:
            self.partitions.pop(key, None)

    def takes(self, key: TopicIdAndPartition, row: PartitionData) -> bool:
        """Return whether a row is sent."""
        cached = self.partitions.get(key)
        if cached is not None and row.records:
            self.partitions[key] = self.partitions.pop(key)
        return cached is None or cached.takes(row)

    def topics(self) -> list[SharedTopicPartition]:
        """Return all partitions, in the order in which they were added."""
        return [SharedTopicPartition(key, cached.topic) for key, cached in self.partitions.items()]


class _CachedShare:
    """A partition of a session. `is_owed`: the next response has a row for it, whatever happens."""

    __slots__ = ("is_owed", "topic")

    def __init__(self, topic: str | None, *, is_owed: bool) -> None:
        self.topic = topic
        self.is_owed = is_owed

    def takes(self, row: PartitionData) -> bool:
        """Return whether a row is sent; after an error the next one is, too."""
        is_sent = bool(row.records) or self.is_owed or bool(row.error_code)
        self.is_owed = bool(row.error_code)
        return is_sent


class ShareFetchContext(Struct, frozen=True, kw_only=True):
    """A request within its session: the partitions to fetch, in the order of the session.

    `session` is None for a request that opens or closes a session. `epoch` is that of the request.
    """

    epoch: int
    partitions: Sequence[SharedTopicPartition] = ()
    session: CachedShareSession | None = None

    @property
    def is_final(self) -> bool:
        """Whether the session ends with this request."""
        return self.epoch == FINAL_SESSION_EPOCH

    @property
    def is_overtaken(self) -> bool:
        """Whether the session has seen another request meanwhile."""
        session = self.session
        return session is not None and session.epoch != next_share_epoch(self.epoch)

    def changed(
        self, rows: dict[TopicIdAndPartition, PartitionData]
    ) -> dict[TopicIdAndPartition, PartitionData]:
        """Return the rows of the response: all that a new session has, of an old one those with
        records or an error, and those of added partitions. Partitions with records move to the end
        of the session, so that all get their turn.
        """
        session = self.session
        if session is None:
            return rows
        return {key: row for key, row in rows.items() if session.takes(key, row)}


class ShareSessions:
    """All sessions of a broker, at most `places`."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._sessions: dict[SessionKey, CachedShareSession] = {}
        self._of_connection: dict[int, CachedShareSession] = {}
        self._members: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, key: SessionKey) -> CachedShareSession | None:
        """Return the session of a member, or None."""
        return self._sessions.get(key)

    def begin(
        self,
        key: SessionKey,
        epoch: int,
        connection: int,
        *,
        added: Sequence[SharedTopicPartition],
        removed: Iterable[TopicIdAndPartition],
        acknowledges: bool,
    ) -> ShareFetchContext | Refusal:
        """Begin a ShareFetch. `acknowledges`: it has acknowledgements.

        Refused with SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, INVALID_REQUEST (a first
        request that acknowledges), UNKNOWN_SERVER_ERROR (one that names a partition twice) or
        SHARE_SESSION_LIMIT_REACHED.
        """
        session = self._sessions.get(key)
        if epoch == FIRST_SESSION_EPOCH:
            if acknowledges:
                return Refusal(ErrorCode.INVALID_REQUEST, "a first request acknowledges nothing")
            self.remove(key)
            if len(frozenset(added)) < len(added):
                return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "a partition is named twice")
            if len(self._sessions) >= self._places:
                return Refusal(ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"{self._places} sessions")
            self._open(CachedShareSession(key, connection, added))
            return ShareFetchContext(epoch=epoch, partitions=added)
        refusal = self._refuse(session, epoch)
        if refusal is not None:
            return refusal
        if epoch == FINAL_SESSION_EPOCH:
            return ShareFetchContext(epoch=epoch)
        assert session is not None, "it was found"
        session.update(added, removed)
        session.epoch = next_share_epoch(session.epoch)
        return ShareFetchContext(epoch=epoch, partitions=session.topics(), session=session)

    def acknowledge(self, key: SessionKey, epoch: int) -> Refusal | None:
        """Begin a ShareAcknowledge. Refused like `begin`; it cannot open a session."""
        if epoch == FIRST_SESSION_EPOCH:
            return Refusal(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "ShareFetch opens sessions")
        session = self._sessions.get(key)
        refusal = self._refuse(session, epoch)
        if refusal is None and session is not None and epoch != FINAL_SESSION_EPOCH:
            session.epoch = next_share_epoch(session.epoch)
        return refusal

    def _refuse(self, session: CachedShareSession | None, epoch: int) -> Refusal | None:
        if session is None:
            return Refusal(ErrorCode.SHARE_SESSION_NOT_FOUND, "the member has no session")
        if epoch not in (FINAL_SESSION_EPOCH, session.epoch):
            return Refusal(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"epoch {epoch} instead of {session.epoch}",
            )
        return None

    def _open(self, session: CachedShareSession) -> None:
        self._sessions[session.key] = session
        self._of_connection[session.connection] = session
        group_id = session.key.group_id
        self._members[group_id] = self._members.get(group_id, 0) + 1

    def remove(self, key: SessionKey) -> CachedShareSession | None:
        """End a session, and return it."""
        session = self._sessions.pop(key, None)
        if session is not None:
            self._members[key.group_id] -= 1
        return session

    def lost(self, connection: int) -> tuple[CachedShareSession | None, str | None]:
        """A connection is lost. Returns the session that was bound to it, if it has not ended
        before, and the group of it if no session of that is left.
        """
        session = self._of_connection.pop(connection, None)
        if session is None:
            return None, None
        group_id = session.key.group_id
        is_current = self._sessions.get(session.key) is session
        if is_current:
            self.remove(session.key)
        is_empty = not self._members.get(group_id, 0)
        if is_empty:
            self._members.pop(group_id, None)
        return session if is_current else None, group_id if is_empty else None

    def clear(self) -> None:
        """End all sessions."""
        self._sessions.clear()
        self._of_connection.clear()
        self._members.clear()


def next_share_epoch(epoch: int) -> int:
    """Return the epoch after one; after the last one comes 1."""
    if epoch < 0:
        return FINAL_SESSION_EPOCH
    return 1 if epoch == INT32_MAX else epoch + 1


def rotated(
    partitions: Sequence[SharedTopicPartition], epoch: int
) -> Sequence[SharedTopicPartition]:
    """Return partitions so that another one is first with each request of a session.

    Source: PartitionRotateStrategy.rotateRoundRobin.
    """
    if len(partitions) < 2 or epoch < 1:
        return partitions
    first = epoch % len(partitions)
    return [*partitions[first:], *partitions[:first]]


def bytes_of_each(bytes_max: int, count: int, acquired: int) -> list[int]:
    """Return the size limits of `count` partitions that are read; `acquired` share the bytes.

    What is left over goes to the first ones (in Kafka to random ones).
    Source: PartitionMaxBytesStrategy.uniformPartitionMaxBytes.
    """
    if bytes_max >= acquired:
        each, left = divmod(bytes_max, acquired)
        return [each + left if place == 0 else each for place in range(count)]
    if bytes_max >= count:
        each, left = divmod(bytes_max, count)
        return [each + left if place == 0 else each for place in range(count)]
    return [1 if place < bytes_max else 0 for place in range(count)]
