"""Plain values that remember how to undo what is not committed yet.

A controller applies records before they are committed; if it loses its leadership, everything from the first uncommitted offset on must be
undone. Each change leaves a note in the journal of the offset that caused it.   Source: org.apache.kafka.timeline.SnapshotRegistry.
"""

from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from typing import Generic, TypeVar, cast

Key = TypeVar("Key")
Value = TypeVar("Value")
Undo = Callable[[], None]

_ABSENT = object()


class Journal:
    """The undo notes of every offset that is applied and not committed, oldest first."""

    __slots__ = ("_pages",)

    def __init__(self) -> None:
        self._pages: list[tuple[int, list[Undo]]] = []

    def mark(self, offset: int) -> None:
        """Open the page of `offset`: changes from here on are caused by the record at that offset."""
        assert not self._pages or offset > self._pages[-1][0], f"offset {offset} is replayed after {self._pages[-1][0]}"
        self._pages.append((offset, []))

    def remember(self, undo: Undo) -> None:
        """Write down how to undo a change. Before the first mark there is nothing to go back to, and nothing is written."""
        if self._pages:
            self._pages[-1][1].append(undo)

    def commit_through(self, last_offset: int) -> None:
        """Forget how to undo `last_offset` and everything before it."""
        kept = 0
        while kept < len(self._pages) and self._pages[kept][0] <= last_offset:
            kept += 1
        del self._pages[:kept]

    def revert_to(self, next_offset: int) -> None:
        """Undo `next_offset` and everything after it, newest first: the state is what it was before that offset was replayed."""
        while self._pages and self._pages[-1][0] >= next_offset:
            for undo in reversed(self._pages.pop()[1]):
                undo()

    @property
    def first_uncommitted_offset(self) -> int | None:
        """The oldest offset that can still be undone; None if everything is committed."""
        return self._pages[0][0] if self._pages else None


class TimelineValue(Generic[Value]):
    """One value; assign to `.value`."""

    __slots__ = ("_journal", "_value")

    def __init__(self, journal: Journal, value: Value) -> None:
        self._journal = journal
        self._value = value

    @property
    def value(self) -> Value:
        """What it is now, committed or not."""
        return self._value

    @value.setter
    def value(self, value: Value) -> None:
        before = self._value
        self._journal.remember(lambda: self._restore(before))
        self._value = value

    def _restore(self, before: Value) -> None:
        self._value = before


class TimelineDict(Generic[Key, Value]):
    """A dictionary whose values are frozen: a change is an assignment. After an undo, a key that was deleted stands at the end of the order."""

    __slots__ = ("_entries", "_journal")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._entries: dict[Key, Value] = {}

    def __getitem__(self, key: Key) -> Value:
        return self._entries[key]

    def __setitem__(self, key: Key, value: Value) -> None:
        self._note_undo(key)
        self._entries[key] = value

    def __delitem__(self, key: Key) -> None:
        self._note_undo(key)
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

    def _note_undo(self, key: Key) -> None:
        before = self._entries.get(key, _ABSENT)
        if before is _ABSENT:
            self._journal.remember(lambda: self._forget(key))
        else:
            self._journal.remember(lambda: self._restore(key, cast(Value, before)))

    def _forget(self, key: Key) -> None:
        del self._entries[key]

    def _restore(self, key: Key, before: Value) -> None:
        self._entries[key] = before
