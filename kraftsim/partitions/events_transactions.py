"""Transactions at a partition: markers, verification, and the last stable offset.

Source: KIP-98.
"""

from kraftsim.events.event import Event


class MarkerAppended(Event):
    """The marker of a producer's transaction is in the log of a replica (not necessarily flushed):
    the leader, or a follower that replicated it.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    offset: int
    on_leader: bool


class MarkerRefused(Event):
    """A leader did not write the marker of a transaction: there is a later epoch of the producer or
    of its coordinator, or it cannot append now.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    error_code: int
    reason: str


class LastStableOffsetMoved(Event):
    """The last stable offset (exclusive) at the leader of a partition.

    Emitted while there are open transactions, and when the last one ends: without any it is the
    high watermark.
    """

    topic: str
    partition: int
    leader_epoch: int
    offset: int
    high_watermark: int


class TransactionVerified(Event):
    """A coordinator verified that partitions are in a transaction, before its first records are
    written there. error_code 0: they are.

    adds: the request also adds them (transaction.version 2). partitions is a comma-separated list
    of TOPIC-PARTITION.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: str
    adds: bool
    error_code: int
