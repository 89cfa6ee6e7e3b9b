"""Changes of the metadata log that brokers must let take effect: which are known to be committed,
and which broker has applied them.

The offset of a change is below the high watermark that its controller reports next. A broker
publishes what it has applied at once: the bound is no time at all. A controller that is deposed
before it knows that its record is committed emits no event for it, so nothing is known of a value
from the election of the next one until it is changed again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from kraftsim.metadata.events import MetadataApplied

K = TypeVar("K")
Process: TypeAlias = tuple[str, int]
"""Node, incarnation."""


@dataclass(slots=True)
class MetadataChange:
    """The latest change of a value; None if it is removed."""

    value: str | None
    event_id: str
    controller: Process
    committed: int | None = None
    """A high watermark above its offset."""
    applied_at: dict[Process, str] = field(default_factory=dict)


class MetadataChanges(Generic[K]):
    """The latest change of each key."""

    def __init__(self) -> None:
        self._changes: dict[K, MetadataChange] = {}

    def put(self, key: K, value: str | None, event_id: str, controller: Process) -> None:
        """A controller has committed a change."""
        self._changes[key] = MetadataChange(value, event_id, controller)

    def on_committed(self, controller: Process, high_watermark: int) -> None:
        """A controller reports its high watermark."""
        for change in self._changes.values():
            if change.committed is None and change.controller == controller:
                change.committed = high_watermark

    def on_elected(self) -> None:
        """A controller is elected: nothing is known any more."""
        self._changes.clear()

    def forget(self, is_gone: Callable[[K], bool]) -> None:
        """What some keys belong to is gone."""
        for key in [key for key in self._changes if is_gone(key)]:
            del self._changes[key]

    def on_applied(
        self, process: Process, event: MetadataApplied, event_id: str
    ) -> Iterator[tuple[K, MetadataChange]]:
        """Yield the changes that a broker has applied now."""
        for key, change in self._changes.items():
            if (
                change.committed is not None
                and change.committed <= event.next_offset
                and process not in change.applied_at
            ):
                change.applied_at[process] = event_id
                yield key, change

    def applied(self, process: Process, key: K) -> MetadataChange | None:
        """Return the change of a key that a broker has applied, or None."""
        change = self._changes.get(key)
        return change if change is not None and process in change.applied_at else None


def applied_changes_sql(change: str) -> str:
    """Return the tables `known` and `applied` of the same rules.

    `change` selects run, node, incarnation, position and value of each change, `next_at` (the
    position of what supersedes it, or NULL), and the columns of its key. `known` has these, and
    `until`, the position from which nothing is known; `applied` has run, changed_at, node,
    incarnation and position of the application of each.
    """
    return f"""
    change AS ({change}), elected AS (
        SELECT c.run, c.position, min(e.position) AS elected_at
        FROM change AS c JOIN controller_elected AS e ON e.run = c.run AND e.position > c.position
        GROUP BY c.run, c.position
    ), committed AS (
        SELECT c.run, c.position, min(m.position) AS committed_at
        FROM change AS c JOIN metadata_committed AS m ON m.run = c.run AND m.node = c.node
            AND m.incarnation = c.incarnation AND m.position > c.position
        GROUP BY c.run, c.position
    ), known AS (
        SELECT c.*, m.high_watermark, k.committed_at,
            CASE WHEN e.elected_at IS NULL OR e.elected_at > c.next_at THEN c.next_at
                ELSE e.elected_at END AS until
        FROM change AS c
        JOIN committed AS k ON k.run = c.run AND k.position = c.position
        JOIN metadata_committed AS m ON m.run = k.run AND m.position = k.committed_at
        LEFT JOIN elected AS e ON e.run = c.run AND e.position = c.position
    ), applied AS (
        SELECT k.run, k.position AS changed_at, a.node, a.incarnation,
            min(a.position) AS position
        FROM known AS k JOIN metadata_applied AS a ON a.run = k.run
            AND a.position > k.committed_at AND a.next_offset >= k.high_watermark
            AND (k.until IS NULL OR a.position < k.until)
        GROUP BY k.run, k.position, a.node, a.incarnation
    )
    """
