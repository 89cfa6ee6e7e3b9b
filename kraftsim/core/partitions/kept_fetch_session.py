"""A fetch session from the side of who reads: what goes into the next request, and what an answer means for the one after it.

Source: KIP-227, org.apache.kafka.clients.FetchSessionHandler.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kraftsim.core.partitions.fetch_sessions import next_session_epoch
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import FIRST_SESSION_EPOCH, NO_SESSION_ID, FetchPartition

ReadKey = tuple[bytes, int]
"""The id of a topic, and the number of a partition."""


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """What a request names: the whole of it, or what is new, has changed or is forgotten."""

    session_id: int
    session_epoch: int
    asked: Mapping[ReadKey, FetchPartition]
    forgotten: tuple[ReadKey, ...] = ()

    @property
    def is_full(self) -> bool:
        """Tell whether it names everything and asks for a new session."""
        return self.session_epoch == FIRST_SESSION_EPOCH

    def forgotten_by_name(self, names: Mapping[bytes, str]) -> tuple[ReadKey, ...]:
        """Return what a leader is to forget that knows topics by their names only.

        Where a topic has got another id, its partitions are asked for under the new one and forgotten under the old one: by name that would be the
        same, and the leader would forget what it was just asked for. Source: FetchRequest.Builder, whose `replaced` is told from version 13 on.
        """
        asked = {(names[topic_id], partition) for topic_id, partition in self.asked}
        return tuple(key for key in self.forgotten if (names[key[0]], key[1]) not in asked)


class KeptFetchSession:
    """The session with one leader. `plan` and what comes of it alternate."""

    def __init__(self) -> None:
        self._id = NO_SESSION_ID
        self._epoch = FIRST_SESSION_EPOCH
        self._known: dict[ReadKey, FetchPartition] = {}

    def plan(self, wanted: Mapping[ReadKey, FetchPartition]) -> FetchPlan:
        """Return how to ask for exactly this."""
        if self._epoch == FIRST_SESSION_EPOCH:
            self._known = dict(wanted)
            return FetchPlan(self._id, self._epoch, wanted)
        known = self._known
        changed = {key: asked for key, asked in wanted.items() if (before := known.get(key)) is not asked and before != asked}
        forgotten = tuple(key for key in known if key not in wanted)
        self._known = dict(wanted)
        return FetchPlan(self._id, self._epoch, changed, forgotten)

    def on_answer(self, error: ErrorCode, session_id: int, told: Iterable[ReadKey]) -> bool:
        """Take in an answer, and tell whether what it says of partitions may be believed."""
        if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._forget()
            return False
        if error is not ErrorCode.NONE:
            self.on_failure()
            return False
        is_full = self._epoch == FIRST_SESSION_EPOCH
        keys = set(told)
        fits = keys == self._known.keys() if is_full else keys <= self._known.keys()
        if not fits:
            self._forget() if is_full else self.on_failure()
        elif session_id == NO_SESSION_ID:
            self._forget()
        else:
            self._id, self._epoch = session_id, next_session_epoch(self._epoch)
        return fits

    def on_failure(self) -> None:
        """No answer came, or a wrong one: close the session with the next request, and open another one."""
        self._epoch = FIRST_SESSION_EPOCH

    def _forget(self) -> None:
        """The leader knows of no session."""
        self._id, self._epoch = NO_SESSION_ID, FIRST_SESSION_EPOCH
