"""Finds lines that are missing in a log: the lines of a node and incarnation are numbered 0, 1, 2,
... without gaps.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise


class LineNumbers:
    """The numbers of the lines of one node and incarnation that were read, as ranges."""

    __slots__ = ("_ranges", "repeated_count")

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []  # first, and one past the last
        self.repeated_count = 0

    def add_all(self, numbers: Sequence[int]) -> None:
        """Add numbers; consecutive ones cost as much as one."""
        count = len(numbers)
        if count and numbers[-1] - numbers[0] == count - 1 and self._follows(numbers):
            self._append(numbers[0], numbers[-1] + 1)
            return
        for number in numbers:
            self._add(number)

    @property
    def missing_count(self) -> int:
        """How many numbers below the highest one are missing."""
        if not self._ranges:
            return 0
        return self._ranges[-1][1] - sum(end - first for first, end in self._ranges)

    def _follows(self, numbers: Sequence[int]) -> bool:
        """Return whether numbers that span their count are consecutive and all new."""
        if self._ranges and numbers[0] < self._ranges[-1][1]:
            return False
        return all(one + 1 == next_one for one, next_one in pairwise(numbers))

    def _append(self, first: int, end: int) -> None:
        if self._ranges and self._ranges[-1][1] == first:
            self._ranges[-1] = (self._ranges[-1][0], end)
        else:
            self._ranges.append((first, end))

    def _add(self, number: int) -> None:
        if not self._ranges or number >= self._ranges[-1][1]:
            self._append(number, number + 1)
            return
        place = bisect_right(self._ranges, (number, float("inf"))) - 1
        if place >= 0 and number < self._ranges[place][1]:
            self.repeated_count += 1
            return
        first, end = number, number + 1
        if place + 1 < len(self._ranges) and self._ranges[place + 1][0] == end:
            end = self._ranges.pop(place + 1)[1]
        if place >= 0 and self._ranges[place][1] == first:
            self._ranges[place] = (self._ranges[place][0], end)
        else:
            self._ranges.insert(place + 1, (first, end))
