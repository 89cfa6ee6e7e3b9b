"""Appends and reads of partitions, and what producer state said of them.   Source: KIP-98."""

from kraftsim.events.event import Event


class BatchAppended(Event):
    """A batch is in the leader's log (not necessarily flushed). first_offset and last_offset are inside; base_sequence is -1 without producer id.

    is_transactional: it holds records of a transaction; the marker that ends one is another fact.
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
    """A batch that is already in the log was acknowledged again with the offset of its first append."""

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
    """A producer was forgotten after producer.id.expiration.ms without a batch."""

    topic: str
    partition: int
    producer_id: int


class ProducerSnapshotTaken(Event):
    """A segment begins at next_offset, and the producers were written down as they are before it. last_offset: of the latest batch that they know."""

    topic: str
    partition: int
    next_offset: int
    last_offset: int


class LeaderElected(Event):
    """This broker leads a partition from now on."""

    topic: str
    partition: int
    leader_epoch: int
    next_offset: int


class LeadershipLost(Event):
    """This broker leads the partition no longer."""

    topic: str
    partition: int
    leader_epoch: int


class LeaderFollowed(Event):
    """This broker copies a partition from its leader from now on; leader_id is -1 while nobody leads."""

    topic: str
    partition: int
    leader_id: int
    leader_epoch: int
    log_end_offset: int


class BatchReplicated(Event):
    """A batch of the leader's is in this follower's log (not necessarily flushed). leader_epoch is the one in which it was written."""

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
    """Everything below high_watermark is on all replicas that are in sync, as this one knows. Not noted by a leader that has no followers."""

    topic: str
    partition: int
    leader_epoch: int
    high_watermark: int
    is_leader: bool


class PartitionTruncated(Event):
    """A follower cut its log back to where its leader's goes on; high_watermark is the one that it knew before."""

    topic: str
    partition: int
    leader_epoch: int
    former_end_offset: int
    log_end_offset: int
    high_watermark: int


class CopyingFailed(Event):
    """A follower could not copy from its leader, and waits or gives up; reason says why."""

    topic: str
    partition: int
    leader_id: int
    reason: str


class LogStartMoved(Event):
    """A replica's log begins later than before; reason is what made it so."""

    topic: str
    partition: int
    log_start_offset: int
    reason: str


class IsrChangeAsked(Event):
    """A leader asks the controller for another set of in-sync replicas. isr is a list with commas."""

    topic: str
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: str


class IsrChanged(Event):
    """A leader learned which replicas are in sync now."""

    topic: str
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: str


class ReplicaInSync(Event):
    """The harness was told by every broker that this replica is in sync, after all faults were healed: `broker` is the name of its node."""

    topic: str
    partition: int
    broker: str


class FinalBatch(Event):
    """At the end of a run: one batch found in the segments on disk of `broker` (read from the files, not from memory)."""

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
    """At the end of a run: the extent of one log on the disk of `broker`. next_offset is outside; record_count is -1 if no FinalRecord lists them."""

    topic: str
    partition: int
    log_start_offset: int
    next_offset: int
    batch_count: int
    broker: str = ""
    record_count: int = -1


class FinalRecord(Event):
    """At the end of a run: one record of a data batch found in the segments on disk, by its key ('' without a key)."""

    topic: str
    partition: int
    offset: int
    record_key: str
    broker: str = ""


class FinalMarker(Event):
    """At the end of a run: a transaction of a producer ends here in the log of `broker`, by a coordinator of that epoch."""

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

    status is the number of a TransactionState (-1: the id was forgotten); partitions is a list with commas of TOPIC-PARTITION.
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
    """At the end of a run: an offset that a group committed, as `__consumer_offsets` has it in the log of `broker` (-1: it was forgotten).

    offsets_partition and log_offset say where the record stands; producer_id is that of the transaction it belongs to, -1 without.
    """

    offsets_partition: int
    log_offset: int
    group_id: str
    topic: str
    partition: int
    committed_offset: int
    producer_id: int
    broker: str = ""
