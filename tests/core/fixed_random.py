"""A random source with values chosen by the test: always the same bytes and the same position
within a range.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Drawn:
    """`content` is returned as bytes; `place` is returned as a number, limited to the range."""

    content: bytes = b"i" * 16
    place: int = 0

    def randbytes(self, size_bytes: int) -> bytes:
        """Return the bytes."""
        assert len(self.content) == size_bytes
        return self.content

    def randrange(self, stop: int) -> int:
        """Return the position."""
        return self.place % stop
