"""Appends and reads of partitions, and their validation by producer state.   Source: KIP-98."""

from kraftsim.events.event import Event


class BatchAppended(Event):
    """A batch is in the leader's log (not necessarily flushed). first_offset and last_offset are
    inclusive; base_sequence is -1 without producer id.

    is_transactional: it holds records of a transaction; the marker that ends one is another event.
    """

    topic: str
    partition: int
    leader_epoch: int
    first_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    record_count: int
    size_bytes: int
    crc: int
    is_transactional: bool = False


class DuplicateAnswered(Event):
    """A duplicate batch was acknowledged with the offset of its first append."""

    topic: str
    partition: int
    first_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int


class ProduceRefused(Event):
    """A partition's part of a Produce request was answered with an error."""

    topic: str
    partition: int
    error_code: int
    reason: str
    producer_id: int
    producer_epoch: int
    base_sequence: int


class ProducerStateExpired(Event):
    """The state of a producer expired after producer.id.expiration.ms without a batch."""

    topic: str
    partition: int
    producer_id: int


class ProducerSnapshotTaken(Event):
    """A segment begins at next_offset, and the producer state before it was written to a snapshot.
    last_offset: that of its latest batch.
    """

    topic: str
    partition: int
    next_offset: int
    last_offset: int


class LeaderElected(Event):
    """This broker is the leader of a partition from now on."""

    topic: str
    partition: int
    leader_epoch: int
    next_offset: int


class LeadershipLost(Event):
    """This broker is no longer the leader of the partition."""

    topic: str
    partition: int
    leader_epoch: int


class LeaderFollowed(Event):
    """This broker is a follower of a partition from now on; leader_id is -1 without a leader."""

    topic: str
    partition: int
    leader_id: int
    leader_epoch: int
    log_end_offset: int


class BatchReplicated(Event):
    """A follower replicated a batch of its leader (not necessarily flushed). leader_epoch is the
    one in which it was appended.
    """

    topic: str
    partition: int
    leader_epoch: int
    first_offset: int
    last_offset: int
    crc: int
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False


class PartitionHighWatermarkMoved(Event):
    """Everything below high_watermark is on all in-sync replicas, as far as this one knows.

    Not emitted by a leader without followers.
    """

    topic: str
    partition: int
    leader_epoch: int
    high_watermark: int
    is_leader: bool


class PartitionTruncated(Event):
    """A follower truncated its log to the offset from which it fetches; high_watermark is the one
    that it knew before.
    """

    topic: str
    partition: int
    leader_epoch: int
    former_end_offset: int
    log_end_offset: int
    high_watermark: int


class ReplicationFailed(Event):
    """A follower could not fetch from its leader, and backs off or stops; reason is the cause."""

    topic: str
    partition: int
    leader_id: int
    reason: str


class LogStartMoved(Event):
    """A replica's log start offset advanced; reason is the cause."""

    topic: str
    partition: int
    log_start_offset: int
    reason: str


class IsrChangeAsked(Event):
    """A leader sent AlterPartition to the controller. isr is a comma-separated list."""

    topic: str
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: str


class IsrChanged(Event):
    """A leader received the new set of in-sync replicas."""

    topic: str
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: str


class ReplicaInSync(Event):
    """Every broker reported to the harness that this replica is in sync, after all faults were
    healed: `broker` is the name of its node.
    """

    topic: str
    partition: int
    broker: str


class FinalBatch(Event):
    """At the end of a run: one batch found in the segments on disk of `broker` (read from the
    files, not from memory).
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    record_count: int
    is_control: bool
    crc: int
    broker: str = ""
    is_transactional: bool = False


class FinalLog(Event):
    """At the end of a run: the extent of one log on the disk of `broker`. next_offset is exclusive;
    record_count is -1 without FinalRecord events.
    """

    topic: str
    partition: int
    log_start_offset: int
    next_offset: int
    batch_count: int
    broker: str = ""
    record_count: int = -1


class FinalRecord(Event):
    """At the end of a run: one record of a data batch found in the segments on disk, by its key (''
    without a key).
    """

    topic: str
    partition: int
    offset: int
    record_key: str
    broker: str = ""


class FinalMarker(Event):
    """At the end of a run: a transaction of a producer ends here in the log of `broker`, by a
    coordinator of that epoch.
    """

    topic: str
    partition: int
    offset: int
    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    broker: str = ""


class FinalTransaction(Event):
    """At the end of a run: a record of `__transaction_state` in the log of `broker`.

    status is the number of a TransactionState (-1: a tombstone); partitions is a comma-separated
    list of TOPIC-PARTITION.
    """

    partition: int
    offset: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    status: int
    partitions: str
    broker: str = ""


class FinalOffset(Event):
    """At the end of a run: an offset that a group committed, as `__consumer_offsets` has it in the
    log of `broker` (-1: a tombstone).

    offsets_partition and log_offset are the position of the record; producer_id is that of its
    transaction, -1 without one.
    """

    offsets_partition: int
    log_offset: int
    group_id: str
    topic: str
    partition: int
    committed_offset: int
    producer_id: int
    broker: str = ""
