"""How a request of many entries is split, and the answers to its parts are joined: for APIs whose entries do not depend on each other.

Slices have fixed numbers of entries and never look at a clock, so that the event log of a seed stays the same.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from protocol.schema import Message

LARGE_REQUEST_BYTES: Final = 16 * 1024
"""A smaller request is served at once, as ever: it has room for at most 2,000 named entries, which take 10 to 20 ms."""
ENTRIES_PER_SLICE: Final = 500
"""So many entries take 1 to 8 ms."""


@dataclass(frozen=True, slots=True)
class Part:
    """A slice of a request. One that `continues` has more of the last entry of the part before, and nothing else."""

    body: Message
    continues: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """Where the entries of a request are, and the rows of its answer.

    `inner` and `inner_rows` are arrays in entries and in rows that count like entries, and are split if one is large by itself.
    `counting` returns the entries that count, where some are passed over or answered once however often they are named.
    `weight` says as how many entries one counts, where it takes longer than others.
    """

    entries: str
    rows: str
    inner: str | None = None
    inner_rows: str | None = None
    counting: Callable[[Sequence[Any]], Sequence[Any]] | None = None
    weight: Callable[[Any], int] | None = None

    def split(self, body: Message) -> list[Part]:
        """Return the request in parts of at most ENTRIES_PER_SLICE entries; the request itself if it is not larger than that."""
        most = ENTRIES_PER_SLICE
        entries: Sequence[Any] = getattr(body, self.entries) or ()
        if self.counting is not None:
            entries = self.counting(entries)
        parts: list[Part] = []
        held: list[Any] = []
        weight = 0
        for entry in entries:
            added = 1 if self.weight is None else self.weight(entry)
            if self.inner is not None:
                added += len(getattr(entry, self.inner) or ())
            if held and weight + added > most:
                parts.append(Part(_with(body, self.entries, held)))
                held, weight = [], 0
            if self.inner is not None and added > most:
                parts += self._split_entry(body, entry, self.inner, most)
                continue
            held.append(entry)
            weight += added
        if held:
            parts.append(Part(_with(body, self.entries, held)))
        return parts if len(parts) > 1 else [Part(body)]

    def join(self, parts: Sequence[Part], answers: Sequence[Message]) -> Message:
        """Return the answer to the whole request: the first one, with the rows of all."""
        joined = answers[0]
        rows: list[Any] = getattr(joined, self.rows)
        for part, answer in zip(parts[1:], answers[1:], strict=True):
            more: list[Any] = getattr(answer, self.rows)
            if part.continues and self.inner_rows is not None and len(more) == 1 and rows:
                getattr(rows[-1], self.inner_rows).extend(getattr(more[0], self.inner_rows))
            else:
                rows.extend(more)
        if hasattr(joined, "throttle_time_ms"):
            joined.throttle_time_ms = max(answer.throttle_time_ms for answer in answers)
        return joined

    def _split_entry(self, body: Message, entry: Message, inner: str, most: int) -> Iterator[Part]:
        within: Sequence[Any] = getattr(entry, inner)
        for first in range(0, len(within), most):
            piece = _with(entry, inner, list(within[first : first + most]))
            yield Part(_with(body, self.entries, [piece]), continues=first > 0)


def _with(message: Message, name: str, value: object) -> Message:
    changed = copy.copy(message)
    setattr(changed, name, value)
    return changed
