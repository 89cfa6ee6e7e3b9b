"""Puts the events of all nodes in the order of time while their logs are still written.

The watermark is the time up to which the events of all nodes are known to have been read: events
below it are passed on, in the order of (t_ns, node, incarnation, n) that an analysis of the
finished run has. A file that was read to its end at some moment lacks only events that were emitted
shortly before it: a node writes its events within a tenth of a second. So a silent node delays the
others by `slack_ns`, and not for as long as it is silent. A node that is paused before it writes
its buffer breaks this rule; its events are late.

`t_ns` counts from the start of the run on the machine's monotonic clock. The watcher does not know
that moment. It takes the smallest difference between its clock and an event that it has just read:
the run cannot have begun later, and the watermark is never too high.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

SLACK_NS: Final = 1_000_000_000
UNKNOWN_ORIGIN_NS: Final = 2_000_000_000
"""A log that does not grow for so long after the first look has its last event now."""
SCANS_MAX: Final = 256


class Line(NamedTuple):
    """A line of a log; its order is the order of time."""

    t_ns: int
    node: str
    incarnation: int
    n: int
    content: bytes


@dataclass(slots=True)
class _File:
    initial_size: int
    position: int = 0
    last_t_ns: int = -1
    not_before_ns: int = -1
    read_fully_ns: int | None = None
    scans: "deque[tuple[int, int]]" = field(default_factory=lambda: deque(maxlen=SCANS_MAX))

    def scanned(self, now_ns: int, size: int) -> None:
        if self.scans and self.scans[-1][1] == size:
            self.scans.pop()
        self.scans.append((now_ns, size))
        self.settle()

    def settle(self) -> None:
        while self.scans and self.scans[0][1] <= self.position:
            self.read_fully_ns = self.scans.popleft()[0]


class EventOrder:
    """Receives lines per file, and returns them in the order of time."""

    def __init__(self, slack_ns: int = SLACK_NS, origin_ns: int | None = None) -> None:
        """`origin_ns` is what an earlier order of the same run has found."""
        self._slack_ns = slack_ns
        self._files: dict[str, _File] = {}
        self._waiting: list[Line] = []
        self._passed: Line | None = None
        self._first_scan_ns: int | None = None
        self._last_scan_ns = 0
        self.origin_ns = origin_ns
        """The run began at this moment of the watcher's clock, or earlier; None: unknown."""
        self._origin_of_old_ns: int | None = None
        self.late_count = 0
        """Lines that came after a later one had been passed on."""

    @property
    def waiting_count(self) -> int:
        """The number of lines above the watermark."""
        return len(self._waiting)

    @property
    def last_passed_ns(self) -> int | None:
        """The time of the last line that was passed on."""
        return None if self._passed is None else self._passed.t_ns

    def scanned(self, now_ns: int, sizes: Mapping[str, int]) -> None:
        """Take note of the readable size of each file at a moment."""
        is_first = self._first_scan_ns is None
        if self._first_scan_ns is None:
            self._first_scan_ns = now_ns
        self._last_scan_ns = now_ns
        for file, size in sizes.items():
            known = self._files.setdefault(file, _File(initial_size=size if is_first else 0))
            known.scanned(now_ns, size)

    def add(
        self,
        file: str,
        lines: Iterable[Line],
        *,
        position: int,
        last_t_ns: int,
        now_ns: int,
        not_before_ns: int = -1,
    ) -> None:
        """Take the next lines of a file, which is now read up to `position`; `last_t_ns` is the
        time of its last event, whose line may be left out. No line behind it is from before
        `not_before_ns`, which a file that was not read yet can have, too.
        """
        known = self._files.setdefault(file, _File(initial_size=0))
        known.position = position
        known.last_t_ns = max(known.last_t_ns, last_t_ns)
        known.not_before_ns = max(known.not_before_ns, not_before_ns)
        known.settle()
        if last_t_ns >= 0:
            origin_ns = now_ns - last_t_ns
            if position > known.initial_size:
                self.origin_ns = _least(self.origin_ns, origin_ns)
            self._origin_of_old_ns = _least(self._origin_of_old_ns, origin_ns)
        for line in lines:
            if self._passed is not None and line < self._passed:
                self.late_count += 1
            self._waiting.append(line)

    def now_t_ns(self, now_ns: int) -> int | None:
        """Return the `t_ns` that an event of this moment has, or a smaller one; None if unknown."""
        if self.origin_ns is not None:
            return now_ns - self.origin_ns
        if (
            self._origin_of_old_ns is not None
            and self._first_scan_ns is not None
            and now_ns - self._first_scan_ns >= UNKNOWN_ORIGIN_NS
        ):
            return now_ns - self._origin_of_old_ns
        return None

    def watermark_ns(self) -> int | None:
        """Return the time below which no event is missing; None if no file is known."""
        if not self._files:
            return None
        lag = self.now_t_ns(self._last_scan_ns)
        marks = []
        for known in self._files.values():
            mark = max(known.last_t_ns, known.not_before_ns)
            if lag is not None and known.read_fully_ns is not None:
                age_ns = self._last_scan_ns - known.read_fully_ns
                mark = max(mark, lag - age_ns - self._slack_ns)
            marks.append(mark)
        if lag is not None:  # a node may start and open a file that no scan has seen
            marks.append(lag - self._slack_ns)
        return min(marks)

    def ready(self) -> Sequence[Line]:
        """Return the lines below the watermark that were not returned before, in order.

        Late lines are among them; the caller starts again if `late_count` is not 0.
        """
        watermark_ns = self.watermark_ns()
        if watermark_ns is None:
            return ()
        self._waiting.sort()  # mostly sorted runs: the merge of the files
        low, high = 0, len(self._waiting)
        while low < high:
            middle = (low + high) // 2
            if self._waiting[middle].t_ns < watermark_ns:
                low = middle + 1
            else:
                high = middle
        return self._take(low)

    def rest(self) -> Sequence[Line]:
        """Return all lines that are left, in order: the run is over."""
        self._waiting.sort()
        return self._take(len(self._waiting))

    def start_again(self, waiting: Iterable[Line], passed: Line | None) -> None:
        """Continue after all lines were passed on in order, up to `passed`, except those that are
        waiting.
        """
        self._waiting = list(waiting)
        self._passed = passed
        self.late_count = 0

    def _take(self, count: int) -> Sequence[Line]:
        taken = self._waiting[:count]
        del self._waiting[:count]
        if taken:
            self._passed = taken[-1]
        return taken


def _least(known: int | None, value: int) -> int:
    return value if known is None else min(known, value)
