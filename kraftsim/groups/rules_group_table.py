"""The groups of one `__consumer_offsets` partition by name, of all types; a name has one group.

Source: org.apache.kafka.coordinator.group.{Group, modern.ModernGroup},
GroupMetadataManager.{groups, maybeDeleteEmptyClassicGroup}.
"""

from collections.abc import Iterable, Iterator
from typing import ClassVar, Protocol

from kraftsim.groups.rules_classic_group import NO_STATE_TIMESTAMP, ClassicGroup, GroupState
from kraftsim.groups.rules_consumer_group import ConsumerGroup
from kraftsim.groups.rules_consumer_group_records import Change, restore_group
from kraftsim.groups.rules_offsets import GroupOffsets, OffsetHolder
from protocol.coordinator.consumer_groups import GroupMetadataKey, GroupMetadataValue
from protocol.errors import ErrorCode


class OtherGroup(OffsetHolder, Protocol):
    """A group of another type than classic and consumer: a share group, for example."""

    type_name: ClassVar[str]
    """In ListGroups, and the name of its rules, which are `OtherGroups`."""
    protocol_type: ClassVar[str]
    expires: ClassVar[bool]
    """Whether the group is deleted once it has neither members nor offsets."""

    @property
    def state_name(self) -> str:
        """Kafka's name of the state."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        ...

    @property
    def gives_way(self) -> bool:
        """Whether a JoinGroup makes it a classic group."""
        ...

    def end(self) -> None:
        """The group is removed, or another broker coordinates it."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether any member subscribes to a topic."""
        ...

    def refuse_commit(
        self,
        member_id: str,
        member_epoch: int,
        api_version: int | None,
        partitions: Iterable[tuple[bytes, int]] = (),
    ) -> ErrorCode | None:
        """Return the error of an offset commit; `api_version` is None inside a transaction."""
        ...

    def refuse_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode | None:
        """Return the error of an offset fetch."""
        ...

    def refuse_offset_deletion(self) -> ErrorCode | None:
        """Return the error of an OffsetDelete."""
        ...

    def tombstones(self) -> list[Change]:
        """Return the records that remove the group with all its members."""
        ...


Group = ClassicGroup | ConsumerGroup | OtherGroup


class GroupTable:
    """Groups of each kind are in order of creation. `offsets_class` stores the offsets of each."""

    def __init__(self, offsets_class: type[GroupOffsets]) -> None:
        self.classic: dict[str, ClassicGroup] = {}
        self.consumers: dict[str, ConsumerGroup] = {}
        self.others: dict[str, OtherGroup] = {}
        self._offsets_class = offsets_class

    def find(self, group_id: str) -> Group | None:
        """Return a group of any type."""
        return self.classic.get(group_id) or self.modern(group_id)

    def modern(self, group_id: str) -> ConsumerGroup | OtherGroup | None:
        """Return a group that is not classic."""
        return self.consumers.get(group_id) or self.others.get(group_id)

    def all(self) -> Iterator[Group]:
        """Yield the groups of all types."""
        yield from list(self.classic.values())
        yield from list(self.consumers.values())
        yield from list(self.others.values())

    def clear(self) -> None:
        """Remove all groups."""
        self.classic.clear()
        self.consumers.clear()
        self.others.clear()

    # Classic groups
    # ----------------------------------------------------------------------------------------------

    def add_classic(self, group_id: str, wall_ms: int = NO_STATE_TIMESTAMP) -> ClassicGroup:
        """Add a classic group."""
        group = self.classic[group_id] = ClassicGroup(group_id, wall_ms)
        group.offsets = self._offsets_class()
        return group

    def replay_classic(self, group_id: str, value: GroupMetadataValue | None) -> None:
        """Apply the record of a classic group."""
        known = self.classic.get(group_id)
        if value is None:
            if known is not None:
                del self.classic[group_id]
                self.give_offsets(group_id, known.offsets)
            return
        group = restore_group(group_id, value)
        group.offsets = self.take_offsets(group_id) if known is None else known.offsets
        self.classic[group_id] = group

    def leave_classic(self, group_id: str) -> list[Change] | None:
        """Return the records with which an empty classic group ends before one of another type
        begins; None if there is none.
        """
        classic = self.classic.get(group_id)
        if classic is None or not classic.is_in(GroupState.EMPTY):
            return None
        return [(GroupMetadataKey(group=group_id), None)]

    # Offsets outlive changes of the type
    # ----------------------------------------------------------------------------------------------

    def take_offsets(self, group_id: str) -> GroupOffsets:
        """Remove the group of a name, if there is one, and return its offsets."""
        former = (
            self.classic.pop(group_id, None)
            or self.consumers.pop(group_id, None)
            or self.others.pop(group_id, None)
        )
        return self._offsets_class() if former is None else former.offsets

    def give_offsets(self, group_id: str, offsets: GroupOffsets) -> None:
        """A group is removed: a classic one keeps its offsets."""
        if not offsets.is_empty:
            self.add_classic(group_id).offsets = offsets
