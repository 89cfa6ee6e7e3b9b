"""One direction of a TCP connection: reordered, repeated or missing segments become ordered bytes,
with gaps for lost ones.

A gap is final when the receiver has acknowledged bytes that the capture lacks and nothing fills it
for a while, or when too much waits after it.
"""

from collections.abc import Iterator
from typing import Final

from kraftsim.inspect.packets import TcpSegment

SEQUENCE_NUMBERS: Final = 1 << 32
WAITING_BYTES_MAX: Final = 16 << 20
PATIENCE_SEGMENTS: Final = 64
"""The number of segments of the connection after which an acknowledged hole counts as a gap of the
capture.
"""
JUMP_BYTES_MAX: Final = 1 << 30
"""A segment further away belongs to another connection between the same ports."""


class Gap(int):
    """This many bytes of the stream are missing; 0 if the number is unknown."""


class Stream:
    """Orders the segments of one direction.

    Positions count from the first byte seen and do not wrap.
    """

    def __init__(self) -> None:
        self._first_sequence: int | None = None
        self._next = 0
        self._acknowledged = 0
        self._waiting: dict[int, tuple[bytes, int]] = {}
        self._waiting_bytes = 0
        self._patience = PATIENCE_SEGMENTS
        self.began_with_syn = False

    def begin(self, sequence: int) -> None:
        """A SYN was seen: the first byte follows it."""
        self._first_sequence = (sequence + 1) % SEQUENCE_NUMBERS
        self.began_with_syn = True

    def is_new_connection(self, sequence: int) -> bool:
        """Return whether a SYN belongs to a new connection, rather than being a retransmission."""
        return (
            self._first_sequence is not None
            and (sequence + 1) % SEQUENCE_NUMBERS != self._first_sequence
        )

    def is_ahead(self, acknowledged: int) -> bool:
        """Return whether the receiver has acknowledged bytes that were not captured yet."""
        if self._first_sequence is None:
            return False
        return 0 < self._position(acknowledged) - self._next <= JUMP_BYTES_MAX

    def acknowledge(self, acknowledged: int) -> Iterator[bytes | Gap]:
        """The receiver has everything before this sequence number."""
        if self._first_sequence is not None:
            position = self._position(acknowledged)
            if position - self._next <= JUMP_BYTES_MAX:
                self._acknowledged = max(self._acknowledged, position)
        yield from self._ordered()

    def feed(self, segment: TcpSegment) -> Iterator[bytes | Gap]:
        """Take a segment; yield the bytes that are in order now, and gaps."""
        if self._first_sequence is None:
            self._first_sequence = segment.sequence
        position = self._position(segment.sequence)
        if abs(position - self._next) > JUMP_BYTES_MAX:
            yield from self.finish()
            self._first_sequence, self._next, self._acknowledged = segment.sequence, 0, 0
            yield Gap(0)
            position = 0
        if segment.payload or segment.lost_bytes:
            self._keep(position, segment.payload, segment.lost_bytes)
        yield from self._ordered()

    def finish(self) -> Iterator[bytes | Gap]:
        """The capture ends: yield what is still waiting, after its gaps."""
        while self._waiting:
            yield from self._skip_gap()
            yield from self._in_order()

    def _position(self, sequence: int) -> int:
        assert self._first_sequence is not None, "the stream has begun"
        expected = (self._first_sequence + self._next) % SEQUENCE_NUMBERS
        return (
            self._next
            + (sequence - expected + SEQUENCE_NUMBERS // 2) % SEQUENCE_NUMBERS
            - SEQUENCE_NUMBERS // 2
        )

    def _keep(self, position: int, payload: bytes, lost_bytes: int) -> None:
        if position + len(payload) + lost_bytes <= self._next:
            return  # sent again
        known = self._waiting.get(position)
        if known is None or len(known[0]) < len(payload):
            self._waiting_bytes += len(payload) - (len(known[0]) if known else 0)
            self._waiting[position] = (payload, lost_bytes)

    def _ordered(self) -> Iterator[bytes | Gap]:
        before = self._next
        yield from self._in_order()
        if not self._waiting or self._next > before:
            self._patience = PATIENCE_SEGMENTS
            return
        if self._acknowledged > self._next:
            self._patience -= 1
        if self._patience <= 0 or self._waiting_bytes > WAITING_BYTES_MAX:
            self._patience = PATIENCE_SEGMENTS
            yield from self._skip_gap()
            yield from self._in_order()

    def _in_order(self) -> Iterator[bytes | Gap]:
        while self._waiting:
            position = self._next if self._next in self._waiting else min(self._waiting)
            if position > self._next:
                return
            payload, lost_bytes = self._waiting.pop(position)
            self._waiting_bytes -= len(payload)
            fresh = payload[self._next - position :]
            end = position + len(payload)
            if fresh:
                self._next = end
                yield fresh
            if lost_bytes and end <= self._next < end + lost_bytes and not self._is_filled(end):
                missing = end + lost_bytes - self._next
                self._next += missing
                yield Gap(missing)

    def _is_filled(self, position: int) -> bool:
        """Return whether a waiting segment contains the bytes that another one lacks."""
        return any(
            start <= position < start + len(payload)
            for start, (payload, _) in self._waiting.items()
        )

    def _skip_gap(self) -> Iterator[Gap]:
        first = min(self._waiting)
        if first > self._next:
            missing = first - self._next
            self._next = first
            yield Gap(missing)
