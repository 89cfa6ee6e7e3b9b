"""One direction of a connection as frames: finds the start of each, however the bytes are split,
and applies decisions to single frames.

Only headers are parsed: the size, and in a request the API key and the correlation id, which
identifies the answer.
Source: Kafka protocol guide, "Common Request and Response Structure".
"""

import struct
from collections.abc import Callable, Container
from dataclasses import dataclass

from kraftsim.cluster.proxy.control_messages import Notify
from kraftsim.lab.faults.field import CLIENTS, Watch

# --------------------------------------------------------------------------------------------------
# Watches for frames: the nth of an API, as request or response, between two names


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

    def __init__(self, node_names: Container[str]) -> None:
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


REQUEST_HEAD = struct.Struct(">ihhi")
"""size, API key, API version, correlation id"""
RESPONSE_HEAD = struct.Struct(">ii")
"""size, correlation id"""
SIZE_FIELD_BYTES = 4
FRAME_MAX_BYTES = 100 * 1024 * 1024
ASKED_MAX = 10_000
OnDue = Callable[[Frame, WaitingFrame], None]


class FrameStream:
    """Forwards bytes to `send`; `cut` is called when a frame ends the connection, and `on_due` when
    a frame matches a watch.

    A match freezes the stream until `thaw` was called as often. `asked` maps correlation ids to API
    keys; both directions of a connection share it.
    """

    __slots__ = (
        "_asked",
        "_copy",
        "_copy_callbacks",
        "_cut",
        "_cut_after",
        "_decided",
        "_due_after",
        "_frame",
        "_freezes",
        "_head",
        "_is_astray",
        "_is_response",
        "_kept",
        "_missing",
        "_names",
        "_on_due",
        "_passed",
        "_send",
        "_swallows",
        "_watches",
        "is_under_way",
    )

    def __init__(
        self,
        *,
        is_response: bool,
        names: tuple[str, str, int],
        asked: dict[int, int],
        watches: FrameWatches,
        send: Callable[[bytes], None],
        cut: Callable[[], None],
        on_due: OnDue,
    ) -> None:
        self._is_response = is_response
        self._names = names
        self._asked = asked
        self._watches = watches
        self._send, self._cut, self._on_due = send, cut, on_due
        self._head = REQUEST_HEAD if not is_response else RESPONSE_HEAD
        self._kept = b""
        """Bytes that arrived and were not parsed yet: the beginning of a header, or everything
        since a freeze.
        """
        self._missing = 0
        """Bytes of the current frame that did not arrive yet."""
        self._freezes = 0
        self._is_astray = False
        self._decided = False
        """Whether the frame at the front of the kept bytes was parsed already."""
        self._frame: Frame | None = None
        self._due_after: list[WaitingFrame] = []
        self.is_under_way = False
        """Whether the held bytes count as sent, and are only late: they arrive even if the sender
        is gone.
        """
        self._forget_decisions()

    @property
    def kept_bytes(self) -> int:
        """The number of bytes that wait here."""
        return len(self._kept)

    @property
    def is_frozen(self) -> bool:
        """Whether the stream waits for a decision."""
        return self._freezes > 0

    def feed(self, data: bytes) -> None:
        """Take what arrived."""
        if (
            self._missing > len(data)
            and not self._freezes
            and self._cut_after < 0
            and not self._swallows
            and not self._copy_callbacks
        ):
            self._missing -= len(data)  # in the middle of a large frame
            self._send(data)
            return
        self._kept += data
        self._go_on()

    def thaw(self) -> None:
        """Release one hold."""
        self._freezes -= 1
        self.is_under_way = False
        self._go_on()

    def abandon(self) -> None:
        """The sender is gone while bytes were held before being sent: discard them."""
        self._kept = b""

    def finish(self) -> None:
        """The stream has ended: forward the incomplete header."""
        self._is_astray = True
        self._go_on()

    def cut_after(self, size_bytes: int) -> None:
        """The held frame ends the connection after so many of its bytes."""
        self._cut_after = size_bytes

    def swallow(self) -> None:
        """The held frame does not arrive."""
        self._swallows = True

    def copy(self, on_whole: Callable[[bytes], None]) -> None:
        """Call back with a copy of the held frame once it has passed."""
        self._copy_callbacks.append(on_whole)

    def _forget_decisions(self) -> None:
        self._cut_after = -1
        self._swallows = False
        self._copy_callbacks: list[Callable[[bytes], None]] = []
        self._copy = bytearray()
        self._passed = 0

    def _go_on(self) -> None:
        data, self._kept = self._kept, b""
        position = begun = 0
        head_bytes = self._head.size
        while position < len(data) and not self._freezes:
            if self._is_astray:
                position = len(data)
            elif self._missing:
                step = min(self._missing, len(data) - position)
                if self._frame is not None:
                    self._pass(data[begun:position])
                    if not self._pass_part(data[position : position + step]):
                        return
                    begun = position + step
                self._missing -= step
                position += step
                if not self._missing:
                    self._end_frame()
            elif len(data) - position < head_bytes:
                break
            elif self._begins(data, position):
                continue
            else:
                break
        self._pass(data[begun:position])
        self._kept = data[position:] + self._kept

    def _begins(self, data: bytes, position: int) -> bool:
        """Parse a header; return False if its frame has to wait."""
        if not self._decided:
            frame = self._seen(data, position)
            if frame is None:
                self._is_astray = True
                return True
            self._missing = frame.size_bytes
            due = self._watches.due(frame)
            if not due:
                return True
            self._missing = 0
            self._frame = frame
            self._due_after = [each for each in due if each.watch.moment == "after"]
            before = [each for each in due if each.watch.moment != "after"]
            self._decided = True
            self._freezes += len(before)
            for each in before:
                self._on_due(frame, each)
            if before:
                return False
        assert self._frame is not None, "decisions are about a frame"
        self._decided = False
        self._missing = self._frame.size_bytes
        return True

    def _seen(self, data: bytes, position: int) -> Frame | None:
        """Return the fields of a header; None if it is none.

        Sizes are at least those of a header.
        """
        client, server, connection = self._names
        if self._is_response:
            size, correlation_id = RESPONSE_HEAD.unpack_from(data, position)
            api_key = self._asked.pop(correlation_id, -1)
        else:
            size, api_key, _, correlation_id = REQUEST_HEAD.unpack_from(data, position)
            self._asked[correlation_id] = api_key
            if len(self._asked) > ASKED_MAX:
                del self._asked[next(iter(self._asked))]  # a Produce with acks=0 is never answered
        if not self._head.size - SIZE_FIELD_BYTES <= size <= FRAME_MAX_BYTES:
            return None
        return Frame(
            api_key=api_key,
            correlation_id=correlation_id,
            is_response=self._is_response,
            client=client,
            server=server,
            size_bytes=size + SIZE_FIELD_BYTES,
            connection=connection,
        )

    def _pass(self, data: bytes) -> None:
        if data:
            self._send(data)

    def _pass_part(self, data: bytes) -> bool:
        """Apply the decision about the current frame to a part of it; return False if that ended
        the connection.
        """
        if self._copy_callbacks:
            self._copy += data
        if 0 <= self._cut_after <= self._passed + len(data):
            self._pass(data[: self._cut_after - self._passed])
            self._cut()
            return False
        self._passed += len(data)
        if not self._swallows:
            self._pass(data)
        return True

    def _end_frame(self) -> None:
        frame, self._frame = self._frame, None
        if frame is None:
            return
        is_truncated = self._cut_after >= 0
        for on_whole in self._copy_callbacks:
            on_whole(bytes(self._copy))
        self._forget_decisions()
        if is_truncated:
            self._cut()
            return
        after, self._due_after = self._due_after, []
        self._freezes += len(after)
        for each in after:
            self._on_due(frame, each)
