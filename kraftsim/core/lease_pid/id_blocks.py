"""Where leased ids come from: one counter in ZooKeeper, from which servers take a hundred at a time.

The counter only grows; ids are what is left of it in so many bits, without 0 (not idempotent) and without all ones (-1, asks for one). So an id comes
again after four billion. What a server has taken and not given away is gone with it.   Source: the lease_pid draft.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberBlock:
    """The numbers first_number .. next_number - 1 of the counter."""

    first_number: int
    next_number: int


def id_of(number: int, id_bits: int) -> int:
    """Return the id that a number of the counter stands for."""
    return 1 + number % ((1 << id_bits) - 2)


class IdReserve:
    """What one server has taken from the counter. `claim` gives the next id, or None: another block must come first."""

    def __init__(self, id_bits: int = 32) -> None:
        self._id_bits = id_bits
        self._next_number = 0
        self._end_number = 0
        self.given_count = 0

    @property
    def left(self) -> int:
        """How many ids it can give away without asking; they are wasted when the server goes."""
        return self._end_number - self._next_number

    def claim(self) -> int | None:
        """Give the next id away."""
        if not self.left:
            return None
        self._next_number += 1
        self.given_count += 1
        return id_of(self._next_number - 1, self._id_bits)

    def take(self, block: NumberBlock) -> None:
        """Go on with another block; what is left of the one before is wasted."""
        assert block.first_number >= self._end_number, "the counter only grows"
        self._next_number, self._end_number = block.first_number, block.next_number
