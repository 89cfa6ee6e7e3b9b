"""What a type of groups beside classic and consumer groups is to its shard: share groups, for
example.

A shard makes the type when the first request or record of it arrives, so that a node without such
groups does not even import it. Records change the groups of a type by `replay` alone, after an
append and when the log is loaded.
Source: org.apache.kafka.coordinator.group.GroupCoordinatorShard.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from kraftsim.events.event import Event
from kraftsim.groups.rules_consumer_group import TopicsView
from kraftsim.groups.rules_consumer_group_records import Change
from kraftsim.groups.rules_group_table import GroupTable
from kraftsim.groups.rules_offsets import Outbox, Stored, coordinator_record
from kraftsim.groups.rules_timing import GroupMoment, GroupSettings, TimerKey, Timers
from protocol.errors import ErrorCode
from protocol.schema import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardParts:
    """What the rules of a type share with the shard that they are in."""

    number: int
    settings: GroupSettings
    outbox: Outbox
    timers: Timers
    topics: TopicsView
    emit: Callable[[Event], None]
    table: GroupTable


class OtherGroups(ABC):
    """The groups of one type in a shard, which are in `parts.table.others`.

    An input that a client waits for ends with a reply in `parts.outbox`.
    """

    name: ClassVar[str]

    def __init__(self, parts: ShardParts) -> None:
        self._parts = parts

    @abstractmethod
    def replay(self, key: Message, value: Message | None) -> None:
        """Apply one record; tombstones of what is unknown have no effect."""

    @abstractmethod
    def begin(self, now: GroupMoment) -> None:
        """The log is replayed: start a full session for every member."""

    @abstractmethod
    def on_timer(self, key: TimerKey, now: GroupMoment) -> None:
        """A deadline of a group of this type has expired."""

    @abstractmethod
    def forget_topics(self, now: GroupMoment) -> None:
        """Topics are deleted; the offsets of groups are not the business of a type."""

    @abstractmethod
    def loaded(self, key: Message, value: Message | None, record_offset: int) -> None:
        """A record is loaded from the log, after its replay."""

    @abstractmethod
    def replicated(self, changes: Sequence[Change], base_offset: int) -> None:
        """Changes are replicated, in consecutive records."""

    # Writing
    # ----------------------------------------------------------------------------------------------

    def do(self, changes: list[Change], *more: Change) -> None:
        """Apply changes, and collect them for the batch of the present input."""
        for change in more:
            self.replay(*change)
            changes.append(change)

    def write(self, changes: Iterable[Change], on_end: Callable[[ErrorCode], None]) -> None:
        """Write changes in one batch, and call `on_end` once they are replicated or have failed; at
        once if there are none.
        """
        kept = tuple(changes)
        if not kept:
            on_end(ErrorCode.NONE)
            return

        def on_stored(stored: Stored) -> None:
            if stored.is_replicated:
                self.replicated(kept, stored.base_offset)
            if not stored.is_late:
                on_end(stored.error)

        self._parts.outbox.store_changes(
            [coordinator_record(*change) for change in kept], on_stored
        )
