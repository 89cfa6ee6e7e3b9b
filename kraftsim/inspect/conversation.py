"""A connection between a client and a node: requests, and the responses that match them by
correlation id.

Source: KafkaChannel, NetworkClient (correlation ids); SaslServerAuthenticator (bare tokens after
SaslHandshake v0).
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kraftsim.inspect.cutter import FrameCutter, RawFrame, Skipped
from kraftsim.inspect.frames import (
    SIZE,
    AskedFrame,
    CapturedFrame,
    FrameKind,
    dissect_request,
    dissect_response,
)
from kraftsim.inspect.likeness import looks_like_header, looks_like_request
from kraftsim.inspect.meaning import MeaningNames, explain
from kraftsim.inspect.packets import PacketEndpoint
from kraftsim.inspect.parts import DecodeTrouble, Tree
from protocol.api_keys import ApiKey
from protocol.messages.k00_produce import ACKS_NONE

HEAD_BYTES: Final = 14
PENDING_MAX: Final = 1 << 16
"""The limit of pending requests; older ones are dropped: a capture may contain one direction
only.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A frame of a connection; `number` counts all frames of a capture from 1.

    In a response, `answers` is the number of its request.
    """

    number: int
    packet: int
    time_ns: int
    client: PacketEndpoint
    node: PacketEndpoint
    frame: CapturedFrame
    answers: int | None = None
    after_ns: int | None = None
    said: str = ""
    """Why the frame could not be decoded, if the frame itself is not the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A remark about a connection besides its frames."""

    client: PacketEndpoint
    node: PacketEndpoint
    packet: int
    text: str
    start: bytes = b""


@dataclass(slots=True, kw_only=True)
class _Pending:
    number: int
    time_ns: int
    asked: AskedFrame | None
    """None: a bare SASL token."""


class Numbers:
    """Counts the frames of a capture."""

    def __init__(self) -> None:
        self.last = 0

    def following(self) -> int:
        """Return the next number."""
        self.last += 1
        return self.last


class _Awaited:
    """Requests without a response.

    A client may use one correlation id for several at a time: they are answered in order.
    """

    def __init__(self) -> None:
        self._by_id: dict[int, deque[_Pending]] = {}
        self._count = 0

    def add(self, correlation_id: int, pending: _Pending) -> None:
        """Add a pending request; the oldest one is dropped if there are too many."""
        if self._count >= PENDING_MAX:
            self.take(next(iter(self._by_id)))
        self._by_id.setdefault(correlation_id, deque()).append(pending)
        self._count += 1

    def oldest(self, correlation_id: int) -> _Pending | None:
        """Return the request that matches the next response with that id."""
        found = self._by_id.get(correlation_id)
        return found[0] if found else None

    def take(self, correlation_id: int) -> _Pending | None:
        """The same, and remove it."""
        found = self._by_id.get(correlation_id)
        if not found:
            return None
        self._count -= 1
        pending = found.popleft()
        if not found:
            del self._by_id[correlation_id]
        return pending


class Conversation:
    """One connection. It gets the bytes of both directions in the order of their packets."""

    def __init__(
        self,
        client: PacketEndpoint,
        node: PacketEndpoint,
        numbers: Numbers,
        names: MeaningNames,
        *,
        from_its_start: bool,
        with_records: bool,
    ) -> None:
        self.client = client
        self.node = node
        self._numbers = numbers
        self._names = names
        self._with_records = with_records
        self._pending = _Awaited()
        self._tokens: list[_Pending] = []
        self._expects_tokens = False
        self._requests = FrameCutter(self._is_request, in_step=from_its_start)
        self._responses = FrameCutter(self._is_response, in_step=from_its_start)

    def feed(
        self, data: bytes, time_ns: int, packet: int, *, from_client: bool
    ) -> Iterator[Exchange | Notice]:
        """Take bytes in order; yield the frames that are complete now."""
        for found in self._cutter(from_client).feed(data, time_ns, packet):
            yield self._found(found, packet, from_client)

    def lose(
        self, missing_bytes: int, time_ns: int, packet: int, *, from_client: bool
    ) -> Iterator[Exchange | Notice]:
        """This many bytes of a direction are not in the capture."""
        for found in self._cutter(from_client).lose(missing_bytes, time_ns, packet):
            yield self._found(found, packet, from_client)

    def finish(self, packet: int) -> Iterator[Exchange | Notice]:
        """The capture, or the connection, ends."""
        for from_client in (True, False):
            for found in self._cutter(from_client).finish():
                yield self._found(found, packet, from_client)

    def _cutter(self, from_client: bool) -> FrameCutter:
        return self._requests if from_client else self._responses

    def _found(
        self, found: RawFrame | Skipped, packet: int, from_client: bool
    ) -> Exchange | Notice:
        if isinstance(found, Skipped):
            side = "client" if from_client else "node"
            text = f"{found.size} bytes of the {side} are left out: {found.reason}"
            return Notice(
                client=self.client, node=self.node, packet=packet, text=text, start=found.start
            )
        return self._request(found) if from_client else self._response(found)

    def _request(self, raw: RawFrame) -> Exchange:
        number = self._numbers.following()
        if self._expects_tokens and not looks_like_header(raw.content, SIZE.size, len(raw.content)):
            self._tokens.append(_Pending(number=number, time_ns=raw.time_ns, asked=None))
            return self._exchange(
                raw,
                number,
                _bare(FrameKind.REQUEST, raw.content, ApiKey.SASL_HANDSHAKE),
                said="a bare SASL token",
            )
        if raw.missing_bytes:
            frame = dissect_request(raw.content, SIZE.size, max(SIZE.size, raw.first_missing))
            frame.tree.troubles.clear()
            self._expect(frame, raw, number)
            return self._exchange(raw, number, frame, said=_missing(raw))
        frame = dissect_request(raw.content, SIZE.size)
        explain(frame, self._names, with_records=self._with_records)
        self._expect(frame, raw, number)
        return self._exchange(raw, number, frame)

    def _expect(self, frame: CapturedFrame, raw: RawFrame, number: int) -> None:
        """Store the request until its response."""
        if frame.api_key < 0:
            return
        self._expects_tokens = frame.api_key == ApiKey.SASL_HANDSHAKE and frame.api_version == 0
        body = frame.body
        if (
            frame.api_key == ApiKey.PRODUCE
            and body is not None
            and body.integer("acks", 1) == ACKS_NONE
        ):
            return
        self._pending.add(
            frame.correlation_id, _Pending(number=number, time_ns=raw.time_ns, asked=frame.asked)
        )

    def _response(self, raw: RawFrame) -> Exchange:
        number = self._numbers.following()
        has_head = len(raw.content) >= SIZE.size * 2
        correlation_id: int = SIZE.unpack_from(raw.content, SIZE.size)[0] if has_head else -1
        pending = self._pending.take(correlation_id) if has_head else None
        if pending is None and self._tokens:
            return self._exchange(
                raw,
                number,
                _bare(FrameKind.RESPONSE, raw.content, ApiKey.SASL_HANDSHAKE),
                self._tokens.pop(0),
                "a bare SASL token",
            )
        if not has_head:
            frame = _bare(FrameKind.RESPONSE, raw.content, -1)
            frame.tree.troubles.append(
                DecodeTrouble(
                    path="", position=SIZE.size, reason="a response without a correlation id"
                )
            )
            return self._exchange(raw, number, frame)
        if pending is None or pending.asked is None:
            frame = _bare(FrameKind.RESPONSE, raw.content, -1)
            frame.correlation_id = correlation_id
            return self._exchange(raw, number, frame, None, "its request is not in the capture")
        if raw.missing_bytes:
            frame = dissect_response(
                raw.content, pending.asked, SIZE.size, max(SIZE.size, raw.first_missing)
            )
            frame.tree.troubles.clear()
            return self._exchange(raw, number, frame, pending, _missing(raw))
        frame = dissect_response(raw.content, pending.asked, SIZE.size)
        explain(frame, self._names, with_records=self._with_records)
        return self._exchange(raw, number, frame, pending)

    def _exchange(
        self,
        raw: RawFrame,
        number: int,
        frame: CapturedFrame,
        pending: _Pending | None = None,
        said: str = "",
    ) -> Exchange:
        return Exchange(
            number=number,
            packet=raw.packet,
            time_ns=raw.time_ns,
            client=self.client,
            node=self.node,
            frame=frame,
            answers=None if pending is None else pending.number,
            after_ns=None if pending is None else raw.time_ns - pending.time_ns,
            said=said,
        )

    def _is_request(
        self, buffer: bytes | bytearray, position: int, begins_segment: bool
    ) -> bool | None:
        """Return whether a request begins here: one with a client id is accepted, any other must
        fit to its last byte.
        """
        if len(buffer) < position + HEAD_BYTES:
            return None if looks_like_start(buffer, position) else False
        if not looks_like_request(buffer, position):
            return False
        if (
            buffer[position + 12] == 0
            and buffer[position + 13] > 0
            and len(buffer) >= position + HEAD_BYTES + buffer[position + 13]
        ):
            return True
        end = position + SIZE.size + SIZE.unpack_from(buffer, position)[0]
        return (
            None
            if len(buffer) < end
            else dissect_request(bytes(buffer[position:end]), SIZE.size).tree.is_whole
        )

    def _is_response(
        self, buffer: bytes | bytearray, position: int, begins_segment: bool
    ) -> bool | None:
        """Return whether a response to a pending request begins here."""
        if len(buffer) < position + SIZE.size * 2:
            return None if looks_like_start(buffer, position) else False
        size, correlation_id = (
            SIZE.unpack_from(buffer, position + ahead)[0] for ahead in (0, SIZE.size)
        )
        pending = self._pending.oldest(correlation_id)
        if pending is None or pending.asked is None or size < SIZE.size or size >> 24:
            return False
        end = position + SIZE.size + size
        if len(buffer) >= end:
            return dissect_response(
                bytes(buffer[position:end]), pending.asked, SIZE.size
            ).tree.is_whole
        return True if begins_segment else None


def looks_like_start(buffer: bytes | bytearray, position: int) -> bool:
    """Return whether the few available bytes can be the start of a frame size below 16 MiB."""
    return position < len(buffer) and buffer[position] == 0


def _bare(kind: FrameKind, content: bytes, api_key: int) -> CapturedFrame:
    """Return a frame that could not be identified."""
    return CapturedFrame(kind=kind, content=content, tree=Tree(), api_key=api_key, is_unknown=True)


def _missing(raw: RawFrame) -> str:
    size = (
        SIZE.size + SIZE.unpack_from(raw.content)[0]
        if len(raw.content) >= SIZE.size
        else len(raw.content)
    )
    return (
        f"{raw.missing_bytes} of {size} bytes are not in the capture, from byte {raw.first_missing}"
    )
