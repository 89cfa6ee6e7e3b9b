"""Connection quotas: accepts connections per listener in order, within the connection limits and
creation rates.

As in Kafka a connection above the rate or limit is not refused: it stays open, and its requests are
not read until it is admitted. Only connections above the limit of one address are closed.
Source: kafka.network.{Acceptor, ConnectionQuotas}, Processor.closeExcessConnections (KIP-402,
KIP-612).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kraftsim.server.connection import ServerConnection
from kraftsim.server.rules_quotas import ConnectionLimits
from kraftsim.world.interface import Clock

REASON_TOO_MANY = "too many connections"


@dataclass(slots=True)
class _AcceptQueue:
    """One listener: its queue of waiting connections, and the earliest time of the next
    admission.
    """

    waiting: deque[ServerConnection] = field(default_factory=deque)
    not_before_ms: int = 0


class ConnectionAdmission:
    """`connections` returns all connections: the one idle longest is closed if the inter-broker
    listener needs room.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        clock: Clock,
        connections: Callable[[], Iterable[ServerConnection]],
    ) -> None:
        self.limits = limits
        self._clock = clock
        self._connections = connections
        self._queues: dict[str, _AcceptQueue] = {}
        self._is_closed = False
        self._admitted: dict[int, tuple[str, str]] = {}
        """Connection number -> listener and address of an admitted connection."""

    def shut(self) -> None:
        """Admit no connections until `open`: the node is not ready to serve."""
        self._is_closed = True

    def open(self) -> None:
        """Admit waiting connections, within the limits."""
        self._is_closed = False
        self.recheck()

    def on_connection(self, connection: ServerConnection) -> None:
        """A new connection: admit it, or queue it."""
        queue = self._queues.setdefault(connection.listener, _AcceptQueue())
        if queue.waiting:
            self._enqueue(queue, connection)
        elif not self._may_admit(queue, connection.listener):
            self._enqueue(queue, connection)
            self._schedule(connection.listener, queue)
        else:
            self._admit(connection)

    def left(self, connection: ServerConnection) -> None:
        """A connection closed: others may be admitted."""
        known = self._admitted.pop(connection.number, None)
        if known is None:
            return
        self.limits.leave(*known)
        self.recheck()

    def recheck(self) -> None:
        """Admit waiting connections, within the limits, which may have changed."""
        for listener, queue in self._queues.items():
            if queue.waiting:
                self._admit_waiting(listener)

    def _may_admit(self, queue: _AcceptQueue, listener: str) -> bool:
        """Charge the creation rate for the next connection, and return whether it is admitted
        now.
        """
        now_ms = self._clock.monotonic_ms()
        queue.not_before_ms = now_ms + self.limits.pause_ms(listener, now_ms)
        return self._is_free(queue, listener)

    def _is_free(self, queue: _AcceptQueue, listener: str) -> bool:
        return (
            not self._is_closed
            and self._clock.monotonic_ms() >= queue.not_before_ms
            and self.limits.has_room(listener)
        )

    @staticmethod
    def _enqueue(queue: _AcceptQueue, connection: ServerConnection) -> None:
        connection.pause_writing()
        queue.waiting.append(connection)

    def _schedule(self, listener: str, queue: _AcceptQueue) -> None:
        wait_ms = queue.not_before_ms - self._clock.monotonic_ms()
        if wait_ms > 0:
            asyncio.get_running_loop().call_later(wait_ms / 1000, self._admit_waiting, listener)

    def _admit_waiting(self, listener: str) -> None:
        """Admit as many waiting connections as possible."""
        queue = self._queues[listener]
        while queue.waiting and self._is_free(queue, listener):
            first = queue.waiting.popleft()
            self._admit(first)
            first.resume_writing()
            if queue.waiting:
                self._may_admit(queue, listener)
        if queue.waiting:
            self._schedule(listener, queue)

    def _admit(self, connection: ServerConnection) -> None:
        if connection.close_reason is not None:
            return  # closed while it waited
        ip = connection.peer.rpartition(":")[0]
        away = self.limits.enter(connection.listener, ip, self._clock.monotonic_ms())
        if away is None:
            self._admitted[connection.number] = (connection.listener, ip)
            self._close_idle()
        elif away.after_ms:
            connection.pause_writing()
            asyncio.get_running_loop().call_later(
                away.after_ms / 1000, connection.close, REASON_TOO_MANY
            )
        else:
            connection.close(REASON_TOO_MANY)

    def _close_idle(self) -> None:
        """A connection of the inter-broker listener exceeded the limit: close the connection of
        another listener that has been idle longest.
        """
        if not self.limits.are_too_many:
            return
        others = [
            each
            for each in self._connections()
            if each.number in self._admitted
            and self.limits.may_go(each.listener)
            and not each.close_reason
        ]
        if others:
            min(others, key=lambda each: (each.last_received, each.number)).close(REASON_TOO_MANY)
