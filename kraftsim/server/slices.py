"""Splits requests with many entries and joins the partial responses: for APIs whose entries are
independent.

Slices have fixed numbers of entries and never depend on a clock, so that the event log of a seed is
reproducible.
"""

import asyncio
import copy
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from protocol.schema import Message

LARGE_REQUEST_BYTES: Final = 16 * 1024
"""A smaller request is served in one turn: it has room for at most 2,000 named entries, which take
10 to 20 ms.
"""
ENTRIES_PER_SLICE: Final = 500
"""This many entries take 1 to 8 ms."""
WEIGHED_REQUEST_BYTES: Final = 128
"""A larger request is weighed, if its entries have weights: two bytes of it can request hundreds of
rows, which take 0.1 to 2 ms.
"""


@dataclass(frozen=True, slots=True)
class SlicePart:
    """A slice of a request.

    One that `continues` has more of the last entry of the previous part, and nothing else.
    """

    body: Message
    continues: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """The entry fields of a request, and the row fields of its response.

    `inner` and `inner_rows` are arrays in entries and rows that count as entries, and are split if
    one is large by itself. `counting` returns the entries that count, if some are ignored or
    duplicates are answered once. `weight` returns the number of entries that one counts as at a
    node, such as 1 plus its response rows, if these are many; `inner_weight` the same for one in
    `inner`. A request is weighed slice by slice, as it is served.
    """

    entries: str
    rows: str
    inner: str | None = None
    inner_rows: str | None = None
    counting: Callable[[Sequence[Any]], Sequence[Any]] | None = None
    weight: Callable[[Any, Any], int] | None = None
    inner_weight: Callable[[Any, Any, Any], int] | None = None

    @property
    def request_bytes_max(self) -> int:
        """The maximum size of a request that is served in one turn without counting its entries."""
        return (
            LARGE_REQUEST_BYTES
            if self.weight is None and self.inner_weight is None
            else WEIGHED_REQUEST_BYTES
        )

    def is_small(self, body: Message, node: object) -> bool:
        """Return whether a request is served in one turn."""
        return next(self.parts(body, node)).body is body

    def split(self, body: Message, node: object = None) -> list[SlicePart]:
        """Return the request in parts of at most ENTRIES_PER_SLICE entries; the request itself if
        it is not larger.
        """
        return list(self.parts(body, node))

    def parts(self, body: Message, node: object = None) -> Iterator[SlicePart]:
        """Yield the same parts, each created on demand."""
        most = ENTRIES_PER_SLICE
        entries: Sequence[Any] = getattr(body, self.entries) or ()
        if self.counting is not None:
            entries = self.counting(entries)
        held: list[Any] = []
        weight, is_whole = 0, True
        for entry in entries:
            added = self._weight_of(node, entry)
            if held and weight + added > most:
                yield SlicePart(_with(body, self.entries, held))
                held, weight, is_whole = [], 0, False
            if self.inner is not None and added > most:
                for pieces, within in enumerate(self._split_inner(node, entry, self.inner)):
                    yield SlicePart(
                        _with(body, self.entries, [_with(entry, self.inner, within)]),
                        continues=pieces > 0,
                    )
                is_whole = False
                continue
            held.append(entry)
            weight += added
        if is_whole:
            yield SlicePart(body)
        elif held:
            yield SlicePart(_with(body, self.entries, held))

    def join(self, parts: Sequence[SlicePart], answers: Sequence[Message]) -> Message:
        """Return the joined response: the first one, with the rows of all."""
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

    def _weight_of(self, node: object, entry: object) -> int:
        """Return the weight of an entry; for one that is large by itself, a lower bound."""
        weight = 1 if self.weight is None else self.weight(node, entry)
        if self.inner is None:
            return weight
        within: Sequence[Any] = getattr(entry, self.inner) or ()
        if self.inner_weight is None:
            return weight + len(within)
        for each in within:
            weight += self.inner_weight(node, entry, each)
            if weight > ENTRIES_PER_SLICE:
                break
        return weight

    def _split_inner(self, node: object, entry: object, inner: str) -> Iterator[list[object]]:
        held: list[object] = []
        weight = 0
        for each in getattr(entry, inner):
            added = 1 if self.inner_weight is None else self.inner_weight(node, entry, each)
            if held and weight + added > ENTRIES_PER_SLICE:
                yield held
                held, weight = [], 0
            held.append(each)
            weight += added
        yield held


def _with(message: Message, name: str, value: object) -> Message:
    changed = copy.copy(message)
    setattr(changed, name, value)
    return changed


# --------------------------------------------------------------------------------------------------
# Scheduling of large requests: in each event-loop turn one of them serves one slice, whichever
# connection it came from
#
# An event loop polls its sockets once per turn. If each of many large requests served a slice per
# turn, a client with a small request would wait for all of them; so it waits for one, and they
# wait for each other in FIFO order. Only a few are held decoded at a time: while 40 clients send
# Metadata for 20,000 topics each, the longest wait of another client takes 198 ms of the node's
# CPU time, and 417 ms with all 40 decoded. Apache Kafka serves as many requests at a time as it
# has threads (num.io.threads).
# Source: kafka.server.KafkaRequestHandlerPool.

REQUESTS_AT_ONCE: Final = 8
"""The default of num.io.threads.

A request that waits for its response, such as for replication, does not count.
"""


class Turns:
    """The turns of a node's loop, granted to waiting tasks one at a time."""

    def __init__(self) -> None:
        self.room = asyncio.Semaphore(REQUESTS_AT_ONCE)
        """Held by a large request from before it is decoded until its last slice is processed."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_giving = False

    async def next(self) -> None:
        """Wait for a turn of the loop that is granted to no other task."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if not self._is_giving:
            self._is_giving = True
            loop.call_soon(self._give)
        await turn

    def _give(self) -> None:
        """Grant this turn to the first task that still waits, and the next one to the next."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # its task was cancelled
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._give)
                return
        self._is_giving = False
