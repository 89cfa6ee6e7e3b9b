"""Plain values with undo information for uncommitted changes.

A controller applies records before they are committed; on loss of leadership, everything from the
first uncommitted offset on is reverted. Each change adds an undo entry to the journal, under the
offset that caused it.
Source: org.apache.kafka.timeline.SnapshotRegistry.
"""

from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from typing import Generic, TypeVar, cast

Key = TypeVar("Key")
Value = TypeVar("Value")
Undo = Callable[[], None]

_ABSENT = object()


class Journal:
    """The undo entries of every applied, uncommitted offset, oldest first."""

    __slots__ = ("_pages",)

    def __init__(self) -> None:
        self._pages: list[tuple[int, list[Undo]]] = []

    def mark(self, offset: int) -> None:
        """Start the entries of `offset`: later changes are caused by the record at this offset."""
        assert not self._pages or offset > self._pages[-1][0], (
            f"offset {offset} is replayed after {self._pages[-1][0]}"
        )
        self._pages.append((offset, []))

    def remember(self, undo: Undo) -> None:
        """Record how to undo a change.

        Before the first mark nothing can be reverted, and nothing is recorded.
        """
        if self._pages:
            self._pages[-1][1].append(undo)

    def commit_through(self, last_offset: int) -> None:
        """Drop the undo entries of `last_offset` and of all earlier offsets."""
        kept = 0
        while kept < len(self._pages) and self._pages[kept][0] <= last_offset:
            kept += 1
        del self._pages[:kept]

    def revert_to(self, next_offset: int) -> None:
        """Revert `next_offset` and all later offsets, latest first: the state is that before this
        offset was replayed.
        """
        while self._pages and self._pages[-1][0] >= next_offset:
            for undo in reversed(self._pages.pop()[1]):
                undo()

    @property
    def first_uncommitted_offset(self) -> int | None:
        """The lowest offset that can still be reverted; None if everything is committed."""
        return self._pages[0][0] if self._pages else None


class TimelineValue(Generic[Value]):
    """One value; assign to `.value`."""

    __slots__ = ("_journal", "_value")

    def __init__(self, journal: Journal, value: Value) -> None:
        self._journal = journal
        self._value = value

    @property
    def value(self) -> Value:
        """The current value, committed or not."""
        return self._value

    @value.setter
    def value(self, value: Value) -> None:
        before = self._value
        self._journal.remember(lambda: self._restore(before))
        self._value = value

    def _restore(self, before: Value) -> None:
        self._value = before


class TimelineDict(Generic[Key, Value]):
    """A dictionary of immutable values: a change is an assignment.

    After a revert, a deleted key is last in the order.
    """

    __slots__ = ("_entries", "_journal")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._entries: dict[Key, Value] = {}

    def __getitem__(self, key: Key) -> Value:
        return self._entries[key]

    def __setitem__(self, key: Key, value: Value) -> None:
        self._record_undo(key)
        self._entries[key] = value

    def __delitem__(self, key: Key) -> None:
        self._record_undo(key)
        del self._entries[key]

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Value | None:
        """Return the value of a key, or None."""
        return self._entries.get(key)

    def keys(self) -> KeysView[Key]:
        """Return a live view of the keys."""
        return self._entries.keys()

    def values(self) -> ValuesView[Value]:
        """Return a live view of the values."""
        return self._entries.values()

    def items(self) -> ItemsView[Key, Value]:
        """Return a live view of keys and values."""
        return self._entries.items()

    def _record_undo(self, key: Key) -> None:
        before = self._entries.get(key, _ABSENT)
        if before is _ABSENT:
            self._journal.remember(lambda: self._forget(key))
        else:
            self._journal.remember(lambda: self._restore(key, cast(Value, before)))

    def _forget(self, key: Key) -> None:
        del self._entries[key]

    def _restore(self, key: Key, before: Value) -> None:
        self._entries[key] = before
