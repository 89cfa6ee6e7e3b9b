"""Watches for frames: the nth of an API, as request or response, between two names."""

from dataclasses import dataclass

from kraftsim.cluster.proxy.control_messages import Notify
from kraftsim.lab.faults.field import CLIENTS, Watch


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """A frame whose header was read.

    `size_bytes` includes its size field; the API key of a response is that of its request, -1 if
    unknown.
    """

    api_key: int
    correlation_id: int
    is_response: bool
    client: str
    server: str
    size_bytes: int
    connection: int


@dataclass(eq=False, slots=True)
class WaitingFrame:
    """A watch that has not matched yet, and its callback."""

    number: int
    watch: Watch
    missing: int
    tell: Notify


class FrameWatches:
    """All watches. Each matches once."""

    def __init__(self, node_names: frozenset[str]) -> None:
        self._node_names = node_names
        self._waiting: dict[int, WaitingFrame] = {}
        self._next_number = 1

    def add(self, watch: Watch, notify: Notify) -> int:
        """Add a watch; return its number."""
        number = self._next_number
        self._next_number += 1
        self._waiting[number] = WaitingFrame(number, watch, watch.nth, notify)
        return number

    def remove(self, number: int) -> None:
        """Wait no more."""
        self._waiting.pop(number, None)

    def remove_those_of(self, notify: Notify) -> None:
        """Remove the watches of a client that has disconnected."""
        for number in [number for number, each in self._waiting.items() if each.tell == notify]:
            del self._waiting[number]

    def due(self, frame: Frame) -> list[WaitingFrame]:
        """Count a frame; remove and return the watches that it matches."""
        due = []
        for waiting in self._waiting.values():
            if self._fits(waiting.watch, frame):
                waiting.missing -= 1
                if not waiting.missing:
                    due.append(waiting)
        for waiting in due:
            del self._waiting[waiting.number]
        return due

    def _fits(self, watch: Watch, frame: Frame) -> bool:
        return (
            watch.api_key in (None, frame.api_key)
            and watch.is_response == frame.is_response
            and self._is_called(frame.client, watch.client)
            and self._is_called(frame.server, watch.server)
            and watch.connection in (None, frame.connection)
            and watch.not_connection != frame.connection
            and watch.correlation_id in (None, frame.correlation_id)
            and not (
                watch.sent_by_node
                and (frame.server if frame.is_response else frame.client) not in self._node_names
            )
        )

    def _is_called(self, name: str, wanted: str | None) -> bool:
        return (
            wanted is None or wanted == name or (wanted == CLIENTS and name not in self._node_names)
        )
