"""Walks over a large response to Fetch while it passes, and hides its endpoints.

The size of a frame is its first field, so a frame that has begun to pass cannot get longer, and an
address can only be replaced while the frame waits. To let megabytes of records wait would hold
consumers back. The endpoints are a tagged field, though, and clients skip tags that they do not
know: with another tag number of the same length the field is unknown. A client without endpoints
asks for Metadata, as before KIP-951.
Source: FetchResponse.json (since version 16); KIP-482 (tagged fields), KIP-951.
"""

from collections.abc import Generator
from typing import Final

HEAD_BYTES: Final = 8
"""Size and correlation id."""
TOP_BYTES: Final = 10
"""Throttle time, error code and session id."""
TOPIC_ID_BYTES: Final = 16
PARTITION_BYTES: Final = 30
"""Index, error code, high watermark, last stable offset and log start offset."""
ABORTED_BYTES: Final = 17
"""Producer id, first offset, and no tagged fields."""
PREFERRED_BYTES: Final = 4
NODE_ENDPOINTS: Final = 0
UNKNOWN_TAG: Final = b"\x7f"
"""A number that no field of FetchResponse has, in one byte."""
Steps = Generator[int, bytes, None]
"""Yields how many bytes it reads next (and gets them), or minus how many it skips."""


class FetchWalk:
    """One response of so many bytes, its size field included. `feed` takes its pieces in order and
    returns them, of the same length.
    """

    def __init__(self, size_bytes: int) -> None:
        self._left = size_bytes
        self._steps = self._walk()
        self._wanted = next(self._steps)
        self._read = b""
        self._is_over = False
        self._hides_next = False

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes, of which those behind the response stay as they are."""
        position, end = 0, min(len(data), self._left)
        self._left -= end
        while position < end and not self._is_over:
            if self._wanted < 0:
                step = min(-self._wanted, end - position)
                position += step
                self._wanted += step
                if not self._wanted:
                    self._go_on(b"")
                continue
            step = min(self._wanted - len(self._read), end - position)
            self._read += data[position : position + step]
            position += step
            if len(self._read) == self._wanted:
                read, self._read = self._read, b""
                self._go_on(read)
                if self._hides_next:
                    self._hides_next = False
                    data = data[: position - 1] + UNKNOWN_TAG + data[position:]
        return data

    def _go_on(self, read: bytes) -> None:
        try:
            self._wanted = self._steps.send(read)
            while not self._wanted:
                self._wanted = self._steps.send(b"")
        except StopIteration:
            self._is_over = True

    def _walk(self) -> Steps:
        yield -HEAD_BYTES
        yield from self._tags()
        yield -TOP_BYTES
        for _ in range((yield from _varint()) - 1):
            yield -TOPIC_ID_BYTES
            for _ in range((yield from _varint()) - 1):
                yield -PARTITION_BYTES
                for _ in range((yield from _varint()) - 1):
                    yield -(ABORTED_BYTES - 1)
                    yield from self._tags()
                yield -PREFERRED_BYTES
                yield -max(0, (yield from _varint()) - 1)
                yield from self._tags()
            yield from self._tags()
        for _ in range((yield from _varint())):
            number = yield 1
            if number == bytes([NODE_ENDPOINTS]):
                self._hides_next = True
            elif number[0] > 0x7F:
                yield from _varint()
            yield -(yield from _varint())

    def _tags(self) -> Steps:
        for _ in range((yield from _varint())):
            yield from _varint()
            yield -(yield from _varint())


def _varint() -> Generator[int, bytes, int]:
    value = shift = 0
    while True:
        byte = (yield 1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
