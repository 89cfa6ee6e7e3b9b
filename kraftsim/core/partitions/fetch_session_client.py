"""A fetch session on the client side: the next request, and the handling of the response.

Source: KIP-227, org.apache.kafka.clients.FetchSessionHandler.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kraftsim.core.partitions.fetch_sessions import next_session_epoch
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import FIRST_SESSION_EPOCH, NO_SESSION_ID, FetchPartition

ReadKey = tuple[bytes, int]
"""Topic id, and partition number."""


@dataclass(frozen=True, slots=True)
class FetchPlan:
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
