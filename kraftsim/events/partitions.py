"""Appends and reads of partitions, and what producer state said of them.   Source: KIP-98."""

from kraftsim.events.event import Event


class BatchAppended(Event):
    """A batch is in the leader's log (not necessarily flushed). first_offset and last_offset are inside; base_sequence is -1 without producer id."""

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
