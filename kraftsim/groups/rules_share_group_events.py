"""Events of share groups, by their records in the log of one `__consumer_offsets` partition.

Each record has its events once it is replicated. What a coordinator has loaded has them too, the
last record of each key only: the coordinator that wrote it may have stopped before it knew that it
was replicated. Assignments are not among these: what they rest on may have been overwritten since.
"""

from collections.abc import Callable, Sequence

from kraftsim.events.event import Event
from kraftsim.groups.events import (
    ShareGroupEnded,
    ShareMemberEpochSet,
    ShareMemberSubscribed,
    SharePartitionGiven,
    SharePartitionInitialized,
    SharePartitionsRecorded,
)
from kraftsim.groups.rules_consumer_group import TopicsView
from kraftsim.groups.rules_consumer_group_records import Change
from kraftsim.groups.rules_share_group import LEFT
from protocol.coordinator.share_groups import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
)
from protocol.schema import Message


class ShareGroupEvents:
    """Emits the events of the share groups of one shard."""

    def __init__(self, emit: Callable[[Event], None], number: int, topics: TopicsView) -> None:
        self._emit = emit
        self._number = number
        self._topics = topics
        self._loaded: dict[tuple[str, ...], tuple[Message, Message | None, int]] = {}
        """While the log is loaded: the last record of each key, with the offset."""

    def loaded(self, key: Message, value: Message | None, record_offset: int) -> None:
        """A record is loaded."""
        place: tuple[str, ...]
        match key:
            case ShareGroupMemberMetadataKey() | ShareGroupCurrentMemberAssignmentKey():
                place = (type(key).__name__, key.group_id, key.member_id)
            case ShareGroupMetadataKey() | ShareGroupStatePartitionMetadataKey():
                place = (type(key).__name__, key.group_id)
            case _:
                return
        self._loaded[place] = (key, value, record_offset)

    def begin(self) -> None:
        """The log is loaded."""
        for key, value, record_offset in self._loaded.values():
            self._emit_record(key, value, record_offset)
        self._loaded.clear()

    def replicated(self, changes: Sequence[Change], base_offset: int) -> None:
        """Changes are replicated, in consecutive records."""
        for record_offset, (key, value) in enumerate(changes, base_offset):
            self._emit_record(key, value, record_offset)
            match key, value:
                case (
                    ShareGroupCurrentMemberAssignmentKey(),
                    ShareGroupCurrentMemberAssignmentValue(),
                ):
                    self._emit_given(key, value, record_offset)

    def _emit_record(self, key: Message, value: Message | None, record_offset: int) -> None:
        match key, value:
            case ShareGroupMemberMetadataKey(), ShareGroupMemberMetadataValue():
                self._emit(
                    ShareMemberSubscribed(
                        coordinator_partition=self._number,
                        group_id=key.group_id,
                        member_id=key.member_id,
                        topics=",".join(value.subscribed_topic_names),
                        record_offset=record_offset,
                    )
                )
            case (
                ShareGroupCurrentMemberAssignmentKey(),
                ShareGroupCurrentMemberAssignmentValue() | None,
            ):
                self._emit(
                    ShareMemberEpochSet(
                        coordinator_partition=self._number,
                        group_id=key.group_id,
                        member_id=key.member_id,
                        member_epoch=LEFT if value is None else value.member_epoch,
                        previous_member_epoch=LEFT
                        if value is None
                        else value.previous_member_epoch,
                        record_offset=record_offset,
                    )
                )
            case ShareGroupMetadataKey(), None:
                self._emit(
                    ShareGroupEnded(
                        coordinator_partition=self._number,
                        group_id=key.group_id,
                        record_offset=record_offset,
                    )
                )
            case ShareGroupStatePartitionMetadataKey(), ShareGroupStatePartitionMetadataValue():
                self._emit_states(key.group_id, value, record_offset)

    def _emit_given(
        self,
        key: ShareGroupCurrentMemberAssignmentKey,
        value: ShareGroupCurrentMemberAssignmentValue,
        record_offset: int,
    ) -> None:
        for row in value.assigned_partitions:
            name = self._topics.name_of(row.topic_id)
            for number in row.partitions if name is not None else ():
                self._emit(
                    SharePartitionGiven(
                        coordinator_partition=self._number,
                        group_id=key.group_id,
                        member_id=key.member_id,
                        member_epoch=value.member_epoch,
                        topic=name or "",
                        partition=number,
                        record_offset=record_offset,
                    )
                )

    def _emit_states(
        self, group_id: str, value: ShareGroupStatePartitionMetadataValue, record_offset: int
    ) -> None:
        initialized = [
            (row.topic_name, number)
            for row in value.initialized_topics
            for number in row.partitions
        ]
        self._emit(
            SharePartitionsRecorded(
                coordinator_partition=self._number,
                group_id=group_id,
                initializing_count=sum(len(row.partitions) for row in value.initializing_topics),
                initialized_count=len(initialized),
                deleting_count=len(value.deleting_topics),
                record_offset=record_offset,
            )
        )
        for topic, number in initialized:
            self._emit(
                SharePartitionInitialized(
                    coordinator_partition=self._number,
                    group_id=group_id,
                    topic=topic,
                    partition=number,
                    record_offset=record_offset,
                )
            )
