"""Drawn numbers that a test chose: the same bytes and the same place in every range, each time."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Drawn:
    """`content` is what is drawn as bytes; `place` is drawn as a number, as far as it is in range."""

    content: bytes = b"i" * 16
    place: int = 0

    def randbytes(self, size_bytes: int) -> bytes:
        """Return the bytes."""
        assert len(self.content) == size_bytes
        return self.content

    def randrange(self, stop: int) -> int:
        """Return the place."""
        return self.place % stop
