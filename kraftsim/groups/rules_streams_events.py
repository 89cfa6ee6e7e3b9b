"""Events of the members of streams groups, by their records in the log: the same as of consumer
group members, so that the same invariants hold.

A member has the partitions of the source topics of its active tasks, those included that it has
yet to revoke; the offsets that it commits are of these.
"""

from collections.abc import Callable, Sequence
from typing import Final

from kraftsim.events.event import Event
from kraftsim.groups.events import ConsumerGroupEnded, MemberEpochSet, PartitionGiven
from kraftsim.groups.rules_consumer_group import TopicsView
from kraftsim.groups.rules_consumer_group_records import Change
from kraftsim.groups.rules_streams_group import StreamsGroup, StreamsMemberState
from protocol.coordinator.streams_groups import (
    CurrentTaskIds,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMetadataKey,
)
from protocol.schema import Message

LEFT: Final = -1


class TaskEvents:
    """Emits the current tasks that are in the log of one `__consumer_offsets` partition: of each
    record once it is replicated, and the last ones that a coordinator has loaded.

    `find` returns a group, whose topology says what its tasks read.
    """

    def __init__(
        self,
        emit: Callable[[Event], None],
        coordinator_partition: int,
        topics: TopicsView,
        find: Callable[[str], StreamsGroup | None],
    ) -> None:
        self._emit = emit
        self._coordinator_partition = coordinator_partition
        self._topics = topics
        self._find = find
        self._loaded: dict[tuple[str, ...], tuple[Message, Message | None, int]] = {}
        """While the log is loaded: the last record of each member, and the last end of each group,
        with the offset.
        """

    def loaded(self, key: Message, value: Message | None, record_offset: int) -> None:
        """A record is loaded."""
        match key, value:
            case StreamsGroupCurrentMemberAssignmentKey(), _:
                self._loaded[key.group_id, key.member_id] = (key, value, record_offset)
            case StreamsGroupMetadataKey(), None:
                self._loaded[key.group_id,] = (key, value, record_offset)

    def begin(self) -> None:
        """The log is loaded."""
        for key, value, record_offset in self._loaded.values():
            self._emit_record(key, value, record_offset)
        self._loaded.clear()

    def replicated(self, changes: Sequence[Change], base_offset: int) -> None:
        """Changes are replicated, in consecutive records."""
        for record_offset, (key, value) in enumerate(changes, base_offset):
            self._emit_record(key, value, record_offset)

    def _emit_record(self, key: Message, value: Message | None, record_offset: int) -> None:
        match key, value:
            case (
                StreamsGroupCurrentMemberAssignmentKey(),
                StreamsGroupCurrentMemberAssignmentValue(),
            ):
                self._emit_current(key.group_id, key.member_id, value, record_offset)
            case StreamsGroupCurrentMemberAssignmentKey(), None:
                self._emit_epoch(key.group_id, key.member_id, (LEFT, LEFT, 0), record_offset)
            case StreamsGroupMetadataKey(), None:
                self._emit(
                    ConsumerGroupEnded(
                        coordinator_partition=self._coordinator_partition,
                        group_id=key.group_id,
                        record_offset=record_offset,
                    )
                )

    def _emit_current(
        self,
        group_id: str,
        member_id: str,
        value: StreamsGroupCurrentMemberAssignmentValue,
        record_offset: int,
    ) -> None:
        state = value.state - StreamsMemberState.STABLE
        epochs = (value.member_epoch, value.previous_member_epoch, state)
        self._emit_epoch(group_id, member_id, epochs, record_offset)
        for is_revoked, rows in (
            (False, value.active_tasks),
            (True, value.active_tasks_pending_revocation),
        ):
            for topic, number in self._partitions(group_id, rows):
                self._emit(
                    PartitionGiven(
                        coordinator_partition=self._coordinator_partition,
                        group_id=group_id,
                        member_id=member_id,
                        member_epoch=value.member_epoch,
                        topic=topic,
                        partition=number,
                        is_revoked=is_revoked,
                        record_offset=record_offset,
                    )
                )

    def _partitions(self, group_id: str, rows: Sequence[CurrentTaskIds]) -> list[tuple[str, int]]:
        """Return the partitions that active tasks read: task n of a subtopology has partition n of
        each source topic that has so many.
        """
        group = self._find(group_id)
        sources: dict[str, list[str]] = {}
        for topic, name in sorted(() if group is None else group.readers().items()):
            sources.setdefault(name, []).append(topic)
        return [
            (topic, number)
            for row in rows
            for topic in sources.get(row.subtopology_id, ())
            for number in row.partitions
            if (found := self._topics.find(topic)) is not None and number < found[1]
        ]

    def _emit_epoch(
        self, group_id: str, member_id: str, epochs: tuple[int, int, int], record_offset: int
    ) -> None:
        member_epoch, previous_member_epoch, state = epochs
        self._emit(
            MemberEpochSet(
                coordinator_partition=self._coordinator_partition,
                group_id=group_id,
                member_id=member_id,
                member_epoch=member_epoch,
                previous_member_epoch=previous_member_epoch,
                member_state=state,
                record_offset=record_offset,
            )
        )
