"""What happens to consumer groups and to the offsets that they commit.

Of offsets every step is told, one event per partition, so that a history says what a reader must be told: `record_offset` is where the commit
stands in the partition of `__consumer_offsets` that `coordinator_partition` names.   Source: KIP-62, KIP-98, KIP-447, kafka.coordinator.group.
"""

from kraftsim.events.event import Event


class GroupsLoaded(Event):
    """A broker answers for the groups of a partition of `__consumer_offsets` from now on; it has read the log up to next_offset."""

    partition: int
    group_count: int
    next_offset: int


class GroupsUnloaded(Event):
    """A broker answers for the groups of a partition of `__consumer_offsets` no longer."""

    partition: int


class OffsetLoaded(Event):
    """Right after GroupsLoaded, once per offset that was read back. With a producer_id (not -1) it waits for the marker of that transaction."""

    coordinator_partition: int
    group_id: str
    topic: str
    partition: int
    offset: int
    record_offset: int
    producer_id: int = -1


class OffsetCommitted(Event):
    """A commit outside of transactions is replicated. is_current: it counts from now on; else a later record is known, or it was forgotten."""

    coordinator_partition: int
    group_id: str
    topic: str
    partition: int
    offset: int
    record_offset: int
    is_current: bool
    member_id: str = ""
    generation_id: int = -1


class PendingOffsetAdded(Event):
    """A commit inside a transaction is replicated, and counts once the transaction is committed."""

    coordinator_partition: int
    group_id: str
    topic: str
    partition: int
    offset: int
    record_offset: int
    producer_id: int
    producer_epoch: int
    transactional_id: str = ""
    member_id: str = ""
    generation_id: int = -1


class OffsetMaterialised(Event):
    """A transaction was committed by the marker at marker_offset. is_current: its offset counts from now on; else a later record is known."""

    coordinator_partition: int
    group_id: str
    topic: str
    partition: int
    offset: int
    record_offset: int
    producer_id: int
    producer_epoch: int
    marker_offset: int
    is_current: bool


class PendingOffsetDropped(Event):
    """A transaction was aborted by the marker at marker_offset: its offset never counts."""

    coordinator_partition: int
    group_id: str
    topic: str
    partition: int
    offset: int
    record_offset: int
    producer_id: int
    producer_epoch: int
    marker_offset: int


class OffsetForgotten(Event):
    """What is committed or pending for a partition counts no longer: it expired, or it, its group or its topic was deleted."""

    coordinator_partition: int
    group_id: str
    topic: str
    partition: int


class OffsetTold(Event):
    """Somebody who asked for a committed offset was told it: -1 where there is none, or where error_code says why it is not told."""

    coordinator_partition: int
    group_id: str
    topic: str
    partition: int
    offset: int
    record_offset: int
    require_stable: bool
    error_code: int
