"""Broker sessions: the time of each broker's last heartbeat.

Not replicated: a new active controller starts all sessions afresh.

Source: KIP-631, org.apache.kafka.controller.BrokerHeartbeatManager.
"""

from collections.abc import Iterable
from typing import Final

NO_OFFSET: Final = -1


class BrokerSession:
    """The state from the heartbeats of one broker."""

    __slots__ = ("controlled_shutdown_offset", "last_contact_ms", "metadata_offset")

    def __init__(self, last_contact_ms: int) -> None:
        self.last_contact_ms = last_contact_ms
        self.metadata_offset = NO_OFFSET
        """The highest metadata offset that the broker has applied."""
        self.controlled_shutdown_offset = NO_OFFSET
        """The offset of the last record written when its controlled shutdown began."""


class BrokerSessions:
    """Sessions by broker id. A session is valid up to and including its last millisecond."""

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._sessions: dict[int, BrokerSession] = {}

    def renew_all(self, broker_ids: Iterable[int], now_ms: int) -> None:
        """Reset all sessions, and start a full session for these brokers."""
        self._sessions = {broker_id: BrokerSession(now_ms) for broker_id in broker_ids}

    def touch(self, broker_id: int, metadata_offset: int, now_ms: int) -> None:
        """Record a heartbeat."""
        session = self._sessions.get(broker_id)
        if session is None:
            session = self._sessions[broker_id] = BrokerSession(now_ms)
        session.last_contact_ms = now_ms
        session.metadata_offset = metadata_offset

    def forget(self, broker_id: int) -> None:
        """Remove the session of an unregistered broker."""
        self._sessions.pop(broker_id, None)

    def begin_registration(self, broker_id: int) -> None:
        """Reset the metadata offset of a broker that (re-)registers."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.metadata_offset = session.controlled_shutdown_offset = NO_OFFSET

    def begin_change(self, broker_id: int, *, is_fenced: bool) -> None:
        """Reset the metadata offset of a broker whose state changes, so that only its next
        heartbeat counts.

        Fencing ends its controlled shutdown.
        Source: BrokerHeartbeatManager.register; compared with Apache Kafka 3.9.1.
        """
        session = self._sessions.get(broker_id)
        if session is not None:
            session.metadata_offset = NO_OFFSET
            if is_fenced:
                session.controlled_shutdown_offset = NO_OFFSET

    def begin_controlled_shutdown(self, broker_id: int, last_offset: int) -> None:
        """Set the offset that the other brokers must have reached before this broker may shut
        down.
        """
        self._sessions[broker_id].controlled_shutdown_offset = last_offset

    def is_leaving(self, broker_id: int) -> bool:
        """Return whether a broker is in a controlled shutdown that began under this controller."""
        return self.controlled_shutdown_offset(broker_id) != NO_OFFSET

    def controlled_shutdown_offset(self, broker_id: int) -> int:
        """Return the offset set by `begin_controlled_shutdown`; -1 if none."""
        session = self._sessions.get(broker_id)
        return NO_OFFSET if session is None else session.controlled_shutdown_offset

    def is_valid(self, broker_id: int, now_ms: int) -> bool:
        """Return whether the last heartbeat of a broker is within the session timeout."""
        session = self._sessions.get(broker_id)
        return session is not None and now_ms <= session.last_contact_ms + self.session_timeout_ms

    def lowest_metadata_offset(self, broker_ids: Iterable[int]) -> int | None:
        """Return the lowest metadata offset of these brokers; None if there are none."""
        sessions = (self._sessions.get(broker_id) for broker_id in broker_ids)
        return min(
            (NO_OFFSET if session is None else session.metadata_offset for session in sessions),
            default=None,
        )

    def longest_silent(self, broker_ids: Iterable[int]) -> tuple[int, int] | None:
        """Return (broker id, last contact) of the broker with the oldest heartbeat; None if there
        are none.
        """
        contacts = ((self._last_contact_ms(broker_id), broker_id) for broker_id in broker_ids)
        oldest = min(contacts, default=None)
        return None if oldest is None else (oldest[1], oldest[0])

    def _last_contact_ms(self, broker_id: int) -> int:
        session = self._sessions.get(broker_id)
        return -self.session_timeout_ms - 1 if session is None else session.last_contact_ms
