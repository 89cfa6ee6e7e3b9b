"""The producers of a partition, kept three ways: a list in order, the list that the draft describes to the letter, and a table.

A list to which new producers are added at one end, and from the other end of which they expire, can be searched by halves if ids arrive in order; and
they do not. A server hands 101 to 105 out in order, and 105 may write first; a leader that takes over goes on with a block of smaller ids. The
repaired list puts each where it belongs. That with one id all greater ones are to expire, as is written, throws the youngest away: of ids that are
given out upward, the smaller are older.
Source: the lease_pid draft.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from kraftsim.core.lease_pid.readings import Lookup


class LeasedProducerEntry(msgspec.Struct, gc=False, eq=True):
    """What is known of one producer in one partition. Times are of the wall clock of the server that saw it."""

    producer_id: int
    generation: int
    sequence_high_watermark: int
    first_seen_ms: int
    last_seen_ms: int


IsDue = Callable[[LeasedProducerEntry], bool]


class LeaseTable(Protocol):
    """Finds producers by id."""

    def get(self, producer_id: int) -> LeasedProducerEntry | None:
        """Return what is known of a producer."""
        ...

    def add(self, entry: LeasedProducerEntry) -> None:
        """Take a producer in that `get` did not find."""
        ...

    def expire(self, is_due: IsDue) -> list[int]:
        """Forget producers that are due, as far as this way of keeping them lets it; return their ids."""
        ...

    def entries(self) -> Iterator[LeasedProducerEntry]:
        """Yield all of them, in an order that does not differ from run to run."""
        ...

    def __len__(self) -> int:
        """Return how many there are."""
        ...


class RepairedList:
    """In order of ids. Those at the front go while they are due; one that is not due keeps all behind it, which does no harm but to memory."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._entries: list[LeasedProducerEntry] = []

    def get(self, producer_id: int) -> LeasedProducerEntry | None:
        """Search by halves."""
        place = bisect_left(self._ids, producer_id)
        return self._entries[place] if place < len(self._ids) and self._ids[place] == producer_id else None

    def add(self, entry: LeasedProducerEntry) -> None:
        """Put it where it belongs: mostly at the end."""
        place = bisect_left(self._ids, entry.producer_id)
        self._ids.insert(place, entry.producer_id)
        self._entries.insert(place, entry)

    def expire(self, is_due: IsDue) -> list[int]:
        """Let go of the smallest ids, up to the first that is not due."""
        count = 0
        while count < len(self._entries) and is_due(self._entries[count]):
            count += 1
        gone = self._ids[:count]
        del self._ids[:count], self._entries[:count]
        return gone

    def entries(self) -> Iterator[LeasedProducerEntry]:
        """Yield them by id."""
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class LiteralList(RepairedList):
    """To the letter: appended in the order of arrival, searched by halves all the same, and with one that is due all above it go."""

    def add(self, entry: LeasedProducerEntry) -> None:
        """Append it."""
        self._ids.append(entry.producer_id)
        self._entries.append(entry)

    def expire(self, is_due: IsDue) -> list[int]:
        """Let go of the first that is due, and of every one behind it."""
        place = next((number for number, entry in enumerate(self._entries) if is_due(entry)), len(self._entries))
        gone = self._ids[place:]
        del self._ids[place:], self._entries[place:]
        return gone


class Table:
    """By id, in no order that means anything."""

    def __init__(self) -> None:
        self._entries: dict[int, LeasedProducerEntry] = {}

    def get(self, producer_id: int) -> LeasedProducerEntry | None:
        """Look it up."""
        return self._entries.get(producer_id)

    def add(self, entry: LeasedProducerEntry) -> None:
        """Put it in."""
        self._entries[entry.producer_id] = entry

    def expire(self, is_due: IsDue) -> list[int]:
        """Look at all of them."""
        gone = [entry.producer_id for entry in self._entries.values() if is_due(entry)]
        for producer_id in gone:
            del self._entries[producer_id]
        return gone

    def entries(self) -> Iterator[LeasedProducerEntry]:
        """Yield them as they came."""
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)


def table_of(lookup: Lookup) -> LeaseTable:
    """Make an empty one of a kind."""
    match lookup:
        case Lookup.REPAIRED_LIST:
            return RepairedList()
        case Lookup.LITERAL_LIST:
            return LiteralList()
        case Lookup.TABLE:
            return Table()
