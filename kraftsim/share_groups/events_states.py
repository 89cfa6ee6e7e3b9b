"""Events of the share coordinator: every record of `__share_group_state`, once it is replicated.

`record_offset` is that of the record in the partition of `__share_group_state` that
`coordinator_partition` names; `topic_id` is in text form. Epochs and offsets are those of the state
that the record leads to.
Source: KIP-932, org.apache.kafka.coordinator.share.
"""

from kraftsim.events.event import Event


class ShareStatesLoaded(Event):
    """A broker coordinates the share-partitions of a partition of `__share_group_state` from now
    on; it has loaded the log up to next_offset.
    """

    partition: int
    state_count: int
    next_offset: int


class ShareStatesUnloaded(Event):
    """A broker has unloaded the share-partitions of a partition of `__share_group_state`."""

    partition: int


class CoordinatedShareLoaded(Event):
    """Right after ShareStatesLoaded, once per share-partition; record_offset is that of its last
    record.
    """

    coordinator_partition: int
    group_id: str
    topic_id: str
    partition: int
    record_offset: int
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int


class CoordinatedShareStored(Event):
    """A record of a share-partition is replicated: a snapshot, or an update.

    cause: 'initialized', 'written', 'read' (a leader of a later epoch has read the state), or
    'cold' (it was not written for a while).
    """

    coordinator_partition: int
    group_id: str
    topic_id: str
    partition: int
    record_offset: int
    is_snapshot: bool
    cause: str
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    batch_count: int


class CoordinatedShareDeleted(Event):
    """The tombstone of a share-partition is replicated."""

    coordinator_partition: int
    group_id: str
    topic_id: str
    partition: int
    record_offset: int


class ShareRecordsPruned(Event):
    """A coordinator has deleted the records of its partition in front of log_start_offset, which
    no state needs any more.
    """

    partition: int
    log_start_offset: int
