"""Events of consumer groups and of the offsets that they commit.

Every step of an offset has an event, one per partition, so that a history determines what a reader
must get: `record_offset` is that of the commit record in the partition of `__consumer_offsets` that
`coordinator_partition` names.
Source: KIP-62, KIP-98, KIP-447, kafka.coordinator.group.
"""

from kraftsim.events.event import Event


class GroupsLoaded(Event):
    """A broker coordinates the groups of a partition of `__consumer_offsets` from now on; it has
    loaded the log up to next_offset.
    """

    partition: int
    group_count: int
    next_offset: int


class GroupsUnloaded(Event):
    """A broker has unloaded the groups of a partition of `__consumer_offsets`."""

    partition: int


class OffsetLoaded(Event):
    """Right after GroupsLoaded, once per loaded offset.

    With a producer_id (not -1) it is pending until the marker of that transaction.
    """

    coordinator_partition: int
    group_id: str
    topic: str
    partition: int
    offset: int
    record_offset: int
    producer_id: int = -1


class OffsetCommitted(Event):
    """A commit outside of transactions is replicated. is_current: it is effective; else there is a
    later record, or the offset was deleted.
    """

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
    """A commit inside a transaction is replicated, and is effective once the transaction is
    committed.
    """

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
    """A transaction was committed by the marker at marker_offset. is_current: its offset is
    effective from now on; else there is a later record.
    """

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
    """A transaction was aborted by the marker at marker_offset: its offset is discarded."""

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
    """The committed or pending offset of a partition was removed: it expired, or it, its group or
    its topic was deleted. reason: 'expired', 'requested' or 'topic deleted'.
    """

    coordinator_partition: int
    group_id: str
    topic: str
    partition: int
    reason: str = ""


class GroupRemoved(Event):
    """A coordinator removed a group, as it had nothing left, or a client asked for it; for reasons
    see OffsetForgotten.
    """

    coordinator_partition: int
    group_id: str
    reason: str


class OffsetReturned(Event):
    """A client fetched a committed offset: -1 if there is none, or error_code is the reason why it
    is not returned.
    """

    coordinator_partition: int
    group_id: str
    topic: str
    partition: int
    offset: int
    record_offset: int
    require_stable: bool
    error_code: int


class MemberEpochSet(Event):
    """A member of a consumer or streams group has a current assignment in the log: its epochs, and
    its state (0 stable, 1 has to revoke, 2 waits for others).

    -1 in member_epoch: the member is removed.
    """

    coordinator_partition: int
    group_id: str
    member_id: str
    member_epoch: int
    previous_member_epoch: int
    member_state: int
    record_offset: int


class PartitionGiven(Event):
    """Right after MemberEpochSet, once per partition of that current assignment, those included
    that the member has yet to revoke; in a streams group those that its active tasks read.
    """

    coordinator_partition: int
    group_id: str
    member_id: str
    member_epoch: int
    topic: str
    partition: int
    is_revoked: bool
    record_offset: int


class ConsumerGroupEnded(Event):
    """A consumer or streams group is removed, or has become a classic group."""

    coordinator_partition: int
    group_id: str
    record_offset: int


class ShareMemberSubscribed(Event):
    """A member of a share group has its metadata in the log: the names of its topics, in order and
    separated by commas.
    """

    coordinator_partition: int
    group_id: str
    member_id: str
    topics: str
    record_offset: int


class ShareMemberEpochSet(Event):
    """A member of a share group has a current assignment in the log.

    -1 in member_epoch: the member is removed.
    """

    coordinator_partition: int
    group_id: str
    member_id: str
    member_epoch: int
    previous_member_epoch: int
    record_offset: int


class SharePartitionGiven(Event):
    """Right after ShareMemberEpochSet, once per partition of that current assignment; not for one
    that a coordinator has loaded.
    """

    coordinator_partition: int
    group_id: str
    member_id: str
    member_epoch: int
    topic: str
    partition: int
    record_offset: int


class SharePartitionsRecorded(Event):
    """The log says for which share-partitions of a group a state is being initialized, is
    initialized, or is being deleted (topics).
    """

    coordinator_partition: int
    group_id: str
    initializing_count: int
    initialized_count: int
    deleting_count: int
    record_offset: int


class SharePartitionInitialized(Event):
    """Right after SharePartitionsRecorded, once per share-partition whose state is initialized."""

    coordinator_partition: int
    group_id: str
    topic: str
    partition: int
    record_offset: int


class ShareGroupEnded(Event):
    """A share group is removed."""

    coordinator_partition: int
    group_id: str
    record_offset: int
