"""The sessions of clients: they outlive connections, and end when nothing was heard of a client for its time-out.

As in ZooKeeper time-outs end on the ticks of the server: a session lives up to one tick longer than it asked for.
Source: org.apache.zookeeper.server.{SessionTrackerImpl, ExpiryQueue, ZooKeeperServer (session ids, passwords, limits)}.
"""

import hashlib
from dataclasses import dataclass
from typing import Final

PASSWORD_BYTES: Final = 16
_LAST_SESSION = (1 << 63) - 1


@dataclass(slots=True)
class Session:
    """One client. `expires_ms` is by the monotonic clock."""

    id: int
    timeout_ms: int
    expires_ms: int = 0
    is_closing: bool = False


class Sessions:
    """All sessions, in the order in which they began. Shortest and longest time-out are 2 and 20 ticks."""

    def __init__(self, tick_ms: int, secret: bytes) -> None:
        self.tick_ms = tick_ms
        self.by_id: dict[int, Session] = {}
        self._secret = secret
        self._next_id = 0

    def begin_ids_at(self, wall_ms: int, server_id: int = 0) -> None:
        """Let ids grow from a moment on: a server that is started again hands out none of its former life."""
        self._next_id = max(self._next_id, ((wall_ms << 24) & ((1 << 64) - 1)) >> 8 & _LAST_SESSION | server_id << 56)

    def fresh_id(self) -> int:
        """Return the id of the next session."""
        self._next_id += 1
        return self._next_id - 1

    def bounded(self, timeout_ms: int) -> int:
        """Return the time-out that a client gets which asked for this one."""
        return min(max(timeout_ms, 2 * self.tick_ms), 20 * self.tick_ms)

    def password_of(self, session: int) -> bytes:
        """Return what a client has to know to have a session back."""
        return hashlib.sha256(self._secret + session.to_bytes(8, signed=True)).digest()[:PASSWORD_BYTES]

    def add(self, session: int, timeout_ms: int, now_ms: int) -> Session:
        """Begin a session."""
        added = self.by_id[session] = Session(session, timeout_ms)
        self.touch(session, now_ms)
        return added

    def touch(self, session: int, now_ms: int) -> None:
        """Something was heard of a client."""
        found = self.by_id.get(session)
        if found is not None:
            found.expires_ms = max(found.expires_ms, self._tick_after(now_ms + found.timeout_ms))

    def overdue(self, now_ms: int) -> list[int]:
        """Return the sessions of which nothing was heard in time."""
        return [session.id for session in self.by_id.values() if session.expires_ms <= now_ms and not session.is_closing]

    def next_ms(self) -> int | None:
        """Return when the next session may end."""
        return min((session.expires_ms for session in self.by_id.values() if not session.is_closing), default=None)

    def remove(self, session: int) -> None:
        """A session is over."""
        self.by_id.pop(session, None)

    def _tick_after(self, moment_ms: int) -> int:
        return (moment_ms // self.tick_ms + 1) * self.tick_ms
