"""When the active controller last heard of each broker. Not replicated: a new active controller gives everybody a fresh session.

Source: KIP-631, org.apache.kafka.controller.BrokerHeartbeatManager.
"""

from collections.abc import Iterable
from typing import Final

NO_OFFSET: Final = -1


class BrokerSession:
    """What the heartbeats of one broker said."""

    __slots__ = ("controlled_shutdown_offset", "last_contact_ms", "metadata_offset")

    def __init__(self, last_contact_ms: int) -> None:
        self.last_contact_ms = last_contact_ms
        self.metadata_offset = NO_OFFSET
        """The last offset that the broker has applied."""
        self.controlled_shutdown_offset = NO_OFFSET
        """The last offset of what was written when its controlled shutdown began."""


class BrokerSessions:
    """Sessions by broker id. A session is valid up to and including the moment at which its time is up."""

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._sessions: dict[int, BrokerSession] = {}

    def renew_all(self, broker_ids: Iterable[int], now_ms: int) -> None:
        """Forget what was heard, and give these brokers a full session from now on."""
        self._sessions = {broker_id: BrokerSession(now_ms) for broker_id in broker_ids}

    def touch(self, broker_id: int, metadata_offset: int, now_ms: int) -> None:
        """Take note of a heartbeat."""
        session = self._sessions.get(broker_id)
        if session is None:
            session = self._sessions[broker_id] = BrokerSession(now_ms)
        session.last_contact_ms = now_ms
        session.metadata_offset = metadata_offset

    def forget(self, broker_id: int) -> None:
        """Forget a broker: it is no member any more."""
        self._sessions.pop(broker_id, None)

    def begin_registration(self, broker_id: int) -> None:
        """Forget how far a broker had read: it registered (again)."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.metadata_offset = session.controlled_shutdown_offset = NO_OFFSET

    def begin_change(self, broker_id: int, *, is_fenced: bool) -> None:
        """Forget how far a broker had read: what it is changed, also by its own wish, and only its next heartbeat counts.

        A broker that is fenced is out of its controlled shutdown.   Source: BrokerHeartbeatManager.register; asked of Apache Kafka 3.9.1.
        """
        session = self._sessions.get(broker_id)
        if session is not None:
            session.metadata_offset = NO_OFFSET
            if is_fenced:
                session.controlled_shutdown_offset = NO_OFFSET

    def begin_controlled_shutdown(self, broker_id: int, last_offset: int) -> None:
        """Remember up to where the others must have read before this broker may go."""
        self._sessions[broker_id].controlled_shutdown_offset = last_offset

    def is_leaving(self, broker_id: int) -> bool:
        """Tell whether a broker is in a controlled shutdown that began under this controller."""
        return self.controlled_shutdown_offset(broker_id) != NO_OFFSET

    def controlled_shutdown_offset(self, broker_id: int) -> int:
        """Return what `begin_controlled_shutdown` remembered; -1 if nothing."""
        session = self._sessions.get(broker_id)
        return NO_OFFSET if session is None else session.controlled_shutdown_offset

    def is_valid(self, broker_id: int, now_ms: int) -> bool:
        """Tell whether a broker was heard within the session time-out."""
        session = self._sessions.get(broker_id)
        return session is not None and now_ms <= session.last_contact_ms + self.session_timeout_ms

    def lowest_metadata_offset(self, broker_ids: Iterable[int]) -> int | None:
        """Return how far the slowest of these brokers has read; None if there are none."""
        sessions = (self._sessions.get(broker_id) for broker_id in broker_ids)
        return min((NO_OFFSET if session is None else session.metadata_offset for session in sessions), default=None)

    def longest_silent(self, broker_ids: Iterable[int]) -> tuple[int, int] | None:
        """Return (broker id, last contact) of the broker that was silent for the longest time; None if there are none."""
        contacts = ((self._last_contact_ms(broker_id), broker_id) for broker_id in broker_ids)
        oldest = min(contacts, default=None)
        return None if oldest is None else (oldest[1], oldest[0])

    def _last_contact_ms(self, broker_id: int) -> int:
        session = self._sessions.get(broker_id)
        return -self.session_timeout_ms - 1 if session is None else session.last_contact_ms
