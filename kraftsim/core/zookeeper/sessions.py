"""Client sessions: they outlive connections, and expire without requests for their timeout.

As in ZooKeeper sessions expire on the server's ticks: up to one tick later than requested.
Source: org.apache.zookeeper.server.{SessionTrackerImpl, ExpiryQueue, ZooKeeperServer (session ids,
passwords, limits)}.
"""

import hashlib
from dataclasses import dataclass
from typing import Final

PASSWORD_BYTES: Final = 16
_LAST_SESSION = (1 << 63) - 1


@dataclass(slots=True)
class Session:
    """One session. `expires_ms` is on the monotonic clock."""

    id: int
    timeout_ms: int
    expires_ms: int = 0
    is_closing: bool = False


class Sessions:
    """All sessions, in order of creation. Minimum and maximum timeout are 2 and 20 ticks."""

    def __init__(self, tick_ms: int, secret: bytes) -> None:
        self.tick_ms = tick_ms
        self.by_id: dict[int, Session] = {}
        self._secret = secret
        self._next_id = 0

    def begin_ids_at(self, wall_ms: int, server_id: int = 0) -> None:
        """Set the first session id by the wall clock: a restarted server does not reuse ids."""
        self._next_id = max(
            self._next_id,
            ((wall_ms << 24) & ((1 << 64) - 1)) >> 8 & _LAST_SESSION | server_id << 56,
        )

    def fresh_id(self) -> int:
        """Return the id of the next session."""
        self._next_id += 1
        return self._next_id - 1

    def bounded(self, timeout_ms: int) -> int:
        """Return the negotiated timeout for a requested one."""
        return min(max(timeout_ms, 2 * self.tick_ms), 20 * self.tick_ms)

    def password_of(self, session: int) -> bytes:
        """Return the password with which a client resumes a session."""
        return hashlib.sha256(self._secret + session.to_bytes(8, signed=True)).digest()[
            :PASSWORD_BYTES
        ]

    def add(self, session: int, timeout_ms: int, now_ms: int) -> Session:
        """Create a session."""
        added = self.by_id[session] = Session(session, timeout_ms)
        self.touch(session, now_ms)
        return added

    def touch(self, session: int, now_ms: int) -> None:
        """Extend a session after a request."""
        found = self.by_id.get(session)
        if found is not None:
            found.expires_ms = max(found.expires_ms, self._tick_after(now_ms + found.timeout_ms))

    def overdue(self, now_ms: int) -> list[int]:
        """Return the sessions that have expired."""
        return [
            session.id
            for session in self.by_id.values()
            if session.expires_ms <= now_ms and not session.is_closing
        ]

    def next_ms(self) -> int | None:
        """Return the next expiry time."""
        return min(
            (session.expires_ms for session in self.by_id.values() if not session.is_closing),
            default=None,
        )

    def remove(self, session: int) -> None:
        """Remove a session."""
        self.by_id.pop(session, None)

    def _tick_after(self, moment_ms: int) -> int:
        return (moment_ms // self.tick_ms + 1) * self.tick_ms
