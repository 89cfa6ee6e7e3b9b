"""What becomes of transactions at a partition: markers, and how far readers of committed data see.   Source: KIP-98."""

from kraftsim.events.event import Event


class MarkerAppended(Event):
    """The end of a producer's transaction is in the log of a replica (not necessarily flushed): of its leader, or of a follower that copied it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    offset: int
    on_leader: bool


class MarkerRefused(Event):
    """A leader did not write the end of a transaction: a later epoch of the producer or of its coordinator is known, or it cannot write now."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    error_code: int
    reason: str


class LastStableOffsetMoved(Event):
    """Readers of committed data see up to `offset` (outside) at the leader of a partition.

    Noted while a transaction has to do with it, and when the last one ceases to: without any it is the high watermark.
    """

    topic: str
    partition: int
    leader_epoch: int
    offset: int
    high_watermark: int


class TransactionVerified(Event):
    """A coordinator answered whether partitions are in a transaction, before the first records of it are written there. error_code 0: they are.

    adds: it was not only asked, but told to add them (transaction.version 2). partitions is a list with commas of TOPIC-PARTITION.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: str
    adds: bool
    error_code: int
