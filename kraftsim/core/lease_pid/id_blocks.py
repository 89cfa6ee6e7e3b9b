"""Allocation of leased ids: one counter in ZooKeeper, from which servers take a hundred at a time.

The counter only grows; an id is the counter truncated to `id_bits` bits, without 0 (not idempotent)
and without all ones (-1, a request for a new id). So an id repeats after four billion. Ids that a
server has taken and not allocated are lost when it stops.
Source: the lease_pid draft.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberBlock:
    """The counter values first_number .. next_number - 1."""

    first_number: int
    next_number: int


def id_of(number: int, id_bits: int) -> int:
    """Return the id of a counter value."""
    return 1 + number % ((1 << id_bits) - 2)


class IdReserve:
    """The block of one server. `claim` returns the next id, or None: another block is needed."""

    def __init__(self, id_bits: int = 32) -> None:
        self._id_bits = id_bits
        self._next_number = 0
        self._end_number = 0
        self.given_count = 0

    @property
    def left(self) -> int:
        """The number of ids that are left without another block; lost when the server stops."""
        return self._end_number - self._next_number

    def claim(self) -> int | None:
        """Allocate the next id."""
        if not self.left:
            return None
        self._next_number += 1
        self.given_count += 1
        return id_of(self._next_number - 1, self._id_bits)

    def take(self, block: NumberBlock) -> None:
        """Continue with another block; ids left of the former one are lost."""
        assert block.first_number >= self._end_number, "the counter only grows"
        self._next_number, self._end_number = block.first_number, block.next_number
