"""Uncommitted changes can be reverted exactly.

Source: org.apache.kafka.timeline.SnapshotRegistry.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftsim.core.timeline import Journal, TimelineDict, TimelineValue

keys = st.integers(0, 3)
changes = st.lists(st.tuples(keys, st.one_of(st.none(), st.integers())), max_size=4)


def change(
    entries: TimelineDict[int, int], value: TimelineValue[int], steps: list[tuple[int, int | None]]
) -> None:
    """Set or delete keys, and count the steps in a value."""
    for key, wanted in steps:
        value.value += 1
        if wanted is not None:
            entries[key] = wanted
        elif key in entries:
            del entries[key]


@given(st.lists(changes, max_size=8), st.data())
def test_revert_to_an_offset_restores_the_state_before_it(
    pages: list[list[tuple[int, int | None]]], data: st.DataObject
) -> None:
    """The state after a revert is the one observed before the reverted offset; commits in between
    do not change it.
    """
    journal = Journal()
    entries: TimelineDict[int, int] = TimelineDict(journal)
    value = TimelineValue(journal, 0)
    seen = []
    for offset, steps in enumerate(pages):
        seen.append((dict(entries.items()), value.value))
        journal.mark(offset)
        change(entries, value, steps)
    seen.append((dict(entries.items()), value.value))
    to_offset = data.draw(st.integers(0, len(pages)))
    committed = data.draw(st.integers(-1, to_offset - 1))
    journal.commit_through(committed)
    journal.revert_to(to_offset)
    assert (dict(entries.items()), value.value) == seen[to_offset]
    journal.revert_to(0)
    assert (dict(entries.items()), value.value) == seen[committed + 1]


def test_offset_cannot_be_replayed_twice() -> None:
    """Two pages of one offset would make a revert ambiguous."""
    journal = Journal()
    journal.mark(5)
    with pytest.raises(AssertionError, match="offset 5 is replayed after 5"):
        journal.mark(5)


def test_journal_knows_its_oldest_uncommitted_offset() -> None:
    """Committed pages are discarded from the front."""
    journal = Journal()
    assert journal.first_uncommitted_offset is None
    for offset in (3, 4, 7):
        journal.mark(offset)
    journal.commit_through(5)
    assert journal.first_uncommitted_offset == 7
