"""Lets connections in: one after the other through each listener, as soon as there is room and they do not come too fast.

As in Kafka nobody is refused for coming too early: the connection is there, and nothing that it asks is read until its turn has come. Only those that
are too many from one address are closed.
Source: kafka.network.{Acceptor, ConnectionQuotas}, Processor.closeExcessConnections (KIP-402, KIP-612).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kraftsim.core.quotas.connection_limits import ConnectionLimits
from kraftsim.node.connection import ServerConnection
from kraftsim.world.interface import Clock

REASON_TOO_MANY = "too many connections"


@dataclass(slots=True)
class _Door:
    """One listener: who waits before it, the first one first, and until when nobody is let in."""

    waiting: deque[ServerConnection] = field(default_factory=deque)
    not_before_ms: int = 0


class Doorkeeper:
    """`everybody` says who is connected at all: who has been silent for longest goes, where other brokers need the place."""

    def __init__(self, limits: ConnectionLimits, clock: Clock, everybody: Callable[[], Iterable[ServerConnection]]) -> None:
        self.limits = limits
        self._clock = clock
        self._everybody = everybody
        self._doors: dict[str, _Door] = {}
        self._is_shut = False
        self._inside: dict[int, tuple[str, str]] = {}
        """Listener and address of whoever was let in, by the connection's number."""

    def shut(self) -> None:
        """Let nobody in until `open`: the node does not know yet what it would have to say."""
        self._is_shut = True

    def open(self) -> None:
        """Let everybody in who waits, as far as there is room."""
        self._is_shut = False
        self.look_again()

    def knock(self, connection: ServerConnection) -> None:
        """A connection has come: let it in, or let it wait."""
        door = self._doors.setdefault(connection.listener, _Door())
        if door.waiting:
            self._hold(door, connection)
        elif not self._has_turn(door, connection.listener):
            self._hold(door, connection)
            self._try_later(connection.listener, door)
        else:
            self._let_in(connection)

    def left(self, connection: ServerConnection) -> None:
        """A connection is gone: there may be room for others."""
        known = self._inside.pop(connection.number, None)
        if known is None:
            return
        self.limits.leave(*known)
        self.look_again()

    def look_again(self) -> None:
        """Let in whoever waits, as far as there is room; other limits may hold now."""
        for listener, door in self._doors.items():
            if door.waiting:
                self._open(listener)

    def _has_turn(self, door: _Door, listener: str) -> bool:
        """Count who comes to the front, and tell whether the way is free."""
        now_ms = self._clock.monotonic_ms()
        door.not_before_ms = now_ms + self.limits.pause_ms(listener, now_ms)
        return self._is_free(door, listener)

    def _is_free(self, door: _Door, listener: str) -> bool:
        return not self._is_shut and self._clock.monotonic_ms() >= door.not_before_ms and self.limits.has_room(listener)

    @staticmethod
    def _hold(door: _Door, connection: ServerConnection) -> None:
        connection.pause_writing()
        door.waiting.append(connection)

    def _try_later(self, listener: str, door: _Door) -> None:
        wait_ms = door.not_before_ms - self._clock.monotonic_ms()
        if wait_ms > 0:
            asyncio.get_running_loop().call_later(wait_ms / 1000, self._open, listener)

    def _open(self, listener: str) -> None:
        """Let in as many of those who wait as may come now."""
        door = self._doors[listener]
        while door.waiting and self._is_free(door, listener):
            first = door.waiting.popleft()
            self._let_in(first)
            first.resume_writing()
            if door.waiting:
                self._has_turn(door, listener)
        if door.waiting:
            self._try_later(listener, door)

    def _let_in(self, connection: ServerConnection) -> None:
        if connection.close_reason is not None:
            return  # gone before its turn came
        ip = connection.peer.rpartition(":")[0]
        away = self.limits.enter(connection.listener, ip, self._clock.monotonic_ms())
        if away is None:
            self._inside[connection.number] = (connection.listener, ip)
            self._make_room()
        elif away.after_ms:
            connection.pause_writing()
            asyncio.get_running_loop().call_later(away.after_ms / 1000, connection.close, REASON_TOO_MANY)
        else:
            connection.close(REASON_TOO_MANY)

    def _make_room(self) -> None:
        """Another broker came in where there was no place for it: who has asked nothing for longest goes."""
        if not self.limits.are_too_many:
            return
        others = [each for each in self._everybody() if each.number in self._inside and self.limits.may_go(each.listener) and not each.close_reason]
        if others:
            min(others, key=lambda each: (each.last_heard, each.number)).close(REASON_TOO_MANY)
