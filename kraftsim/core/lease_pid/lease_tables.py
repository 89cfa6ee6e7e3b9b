"""Three representations of a partition's producers: an ordered list, the list that the draft
describes literally, and a hash table.

A list with new producers appended at one end and expired ones removed from the other supports
binary search if ids arrive in order; but they do not. A server allocates 101 to 105 in order, and
105 may write first; a new leader continues with a block of smaller ids. The repaired list inserts
each entry in order. The literal rule, that all ids above an expired one expire too, removes the
youngest: as ids are allocated upward, the smaller ones are older.
Source: the lease_pid draft.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from kraftsim.core.lease_pid.readings import Lookup


class LeasedProducerEntry(msgspec.Struct, gc=False, eq=True):
    """The state of one producer in one partition.

    Times are of the wall clock of the server that recorded them.
    """

    producer_id: int
    generation: int
    sequence_high_watermark: int
    first_seen_ms: int
    last_seen_ms: int


IsDue = Callable[[LeasedProducerEntry], bool]


class LeaseTable(Protocol):
    """A lookup of producers by id."""

    def get(self, producer_id: int) -> LeasedProducerEntry | None:
        """Return the entry of a producer."""
        ...

    def add(self, entry: LeasedProducerEntry) -> None:
        """Add a producer that `get` did not find."""
        ...

    def expire(self, is_due: IsDue) -> list[int]:
        """Remove expired producers, as far as the representation allows it; return their ids."""
        ...

    def entries(self) -> Iterator[LeasedProducerEntry]:
        """Yield all entries, in a deterministic order."""
        ...

    def __len__(self) -> int:
        """Return the number of entries."""
        ...


class RepairedList:
    """Ordered by id.

    Expires from the front; an entry that is not due keeps all behind it, which costs memory only.
    """

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._entries: list[LeasedProducerEntry] = []

    def get(self, producer_id: int) -> LeasedProducerEntry | None:
        """Binary search."""
        place = bisect_left(self._ids, producer_id)
        return (
            self._entries[place]
            if place < len(self._ids) and self._ids[place] == producer_id
            else None
        )

    def add(self, entry: LeasedProducerEntry) -> None:
        """Insert in order: mostly at the end."""
        place = bisect_left(self._ids, entry.producer_id)
        self._ids.insert(place, entry.producer_id)
        self._entries.insert(place, entry)

    def expire(self, is_due: IsDue) -> list[int]:
        """Remove the smallest ids, up to the first that is not due."""
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
    """Literal: appended in the order of arrival, still searched by bisection, and one expired entry
    removes all above it.
    """

    def add(self, entry: LeasedProducerEntry) -> None:
        """Append it."""
        self._ids.append(entry.producer_id)
        self._entries.append(entry)

    def expire(self, is_due: IsDue) -> list[int]:
        """Remove the first that is due, and all behind it."""
        place = next(
            (number for number, entry in enumerate(self._entries) if is_due(entry)),
            len(self._entries),
        )
        gone = self._ids[place:]
        del self._ids[place:], self._entries[place:]
        return gone


class Table:
    """A hash table by id."""

    def __init__(self) -> None:
        self._entries: dict[int, LeasedProducerEntry] = {}

    def get(self, producer_id: int) -> LeasedProducerEntry | None:
        """Look it up."""
        return self._entries.get(producer_id)

    def add(self, entry: LeasedProducerEntry) -> None:
        """Add it."""
        self._entries[entry.producer_id] = entry

    def expire(self, is_due: IsDue) -> list[int]:
        """Check all entries."""
        gone = [entry.producer_id for entry in self._entries.values() if is_due(entry)]
        for producer_id in gone:
            del self._entries[producer_id]
        return gone

    def entries(self) -> Iterator[LeasedProducerEntry]:
        """Yield them in order of insertion."""
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)


def table_of(lookup: Lookup) -> LeaseTable:
    """Create an empty table of a kind."""
    match lookup:
        case Lookup.REPAIRED_LIST:
            return RepairedList()
        case Lookup.LITERAL_LIST:
            return LiteralList()
        case Lookup.TABLE:
            return Table()
