"""Events of committed offsets, one per partition: committed, pending, visible, fetched, deleted."""

from collections.abc import Callable

from kraftsim.core.groups.group_offsets import CommittedOffset, EndedOffset, TopicPartition
from kraftsim.events.event import Event
from kraftsim.events.groups import (
    OffsetCommitted,
    OffsetForgotten,
    OffsetLoaded,
    OffsetMaterialised,
    OffsetReturned,
    PendingOffsetAdded,
    PendingOffsetDropped,
)
from protocol.batches import NO_PRODUCER_ID
from protocol.errors import ErrorCode

NO_OFFSET = -1


def discard(event: Event) -> None:
    """Drop an event."""


class OffsetEvents:
    """Emits the offset events of one `__consumer_offsets` partition."""

    def __init__(self, emit: Callable[[Event], None], coordinator_partition: int) -> None:
        self._emit = emit
        self._coordinator_partition = coordinator_partition

    def committed(
        self,
        group_id: str,
        partition: TopicPartition,
        placed: CommittedOffset,
        *,
        member_id: str,
        generation_id: int,
        is_current: bool,
    ) -> None:
        """A commit outside of transactions is replicated."""
        self._emit(
            OffsetCommitted(
                coordinator_partition=self._coordinator_partition,
                group_id=group_id,
                topic=partition[0],
                partition=partition[1],
                offset=placed.offset,
                record_offset=placed.record_offset,
                is_current=is_current,
                member_id=member_id,
                generation_id=generation_id,
            )
        )

    def pending(
        self,
        group_id: str,
        partition: TopicPartition,
        placed: CommittedOffset,
        *,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        member_id: str,
        generation_id: int,
    ) -> None:
        """A commit in a transaction is replicated."""
        self._emit(
            PendingOffsetAdded(
                coordinator_partition=self._coordinator_partition,
                group_id=group_id,
                topic=partition[0],
                partition=partition[1],
                offset=placed.offset,
                record_offset=placed.record_offset,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transactional_id=transactional_id,
                member_id=member_id,
                generation_id=generation_id,
            )
        )

    def ended(
        self,
        group_id: str,
        ended: EndedOffset,
        *,
        producer_id: int,
        producer_epoch: int,
        marker_offset: int,
        is_commit: bool,
    ) -> None:
        """The transaction of a pending commit is completed."""
        if not is_commit:
            self._emit(
                PendingOffsetDropped(
                    coordinator_partition=self._coordinator_partition,
                    group_id=group_id,
                    topic=ended.partition[0],
                    partition=ended.partition[1],
                    offset=ended.stored.offset,
                    record_offset=ended.stored.record_offset,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    marker_offset=marker_offset,
                )
            )
            return
        self._emit(
            OffsetMaterialised(
                coordinator_partition=self._coordinator_partition,
                group_id=group_id,
                topic=ended.partition[0],
                partition=ended.partition[1],
                offset=ended.stored.offset,
                record_offset=ended.stored.record_offset,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                marker_offset=marker_offset,
                is_current=ended.counts,
            )
        )

    def loaded(
        self,
        group_id: str,
        partition: TopicPartition,
        stored: CommittedOffset,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        """An offset is loaded from the log."""
        self._emit(
            OffsetLoaded(
                coordinator_partition=self._coordinator_partition,
                group_id=group_id,
                topic=partition[0],
                partition=partition[1],
                offset=stored.offset,
                record_offset=stored.record_offset,
                producer_id=producer_id,
            )
        )

    def returned(
        self,
        group_id: str,
        partition: TopicPartition,
        stored: CommittedOffset | None,
        error: ErrorCode,
        *,
        require_stable: bool,
    ) -> None:
        """An offset fetch returned an offset, no offset, or an error."""
        self._emit(
            OffsetReturned(
                coordinator_partition=self._coordinator_partition,
                group_id=group_id,
                topic=partition[0],
                partition=partition[1],
                offset=NO_OFFSET if stored is None else stored.offset,
                record_offset=NO_OFFSET if stored is None else stored.record_offset,
                require_stable=require_stable,
                error_code=int(error),
            )
        )

    def deleted(self, group_id: str, partition: TopicPartition) -> None:
        """An offset is deleted."""
        self._emit(
            OffsetForgotten(
                coordinator_partition=self._coordinator_partition,
                group_id=group_id,
                topic=partition[0],
                partition=partition[1],
            )
        )
