"""What transactional producers and members of groups did and were told, as they themselves saw it.

`transaction` names one transaction of one producer, 'CLIENT_ID/NUMBER'; records say in RecordSent which one they belong to.
Source: KIP-98, KIP-447, KIP-890.
"""

from kraftsim.events.event import Event


class TransactionalIdTaken(Event):
    """A producer holds a transactional id: whoever held it with a smaller epoch is fenced from now on."""

    client_id: str
    transactional_id: str
    producer_id: int
    producer_epoch: int


class TransactionBegun(Event):
    """A producer begins a transaction; nothing is sent for that."""

    client_id: str
    transactional_id: str
    transaction: str
    producer_id: int
    producer_epoch: int


class TransactionEndAsked(Event):
    """The application asks for the end of its transaction; up to here a read_committed reader must not see it."""

    client_id: str
    transactional_id: str
    transaction: str
    is_commit: bool


class TransactionEnded(Event):
    """What the application knows of its transaction's end: committed, aborted, or unknown (it was fenced, it failed, or it died meanwhile)."""

    client_id: str
    transactional_id: str
    transaction: str
    producer_id: int
    producer_epoch: int
    outcome: str
    error_code: int


class TransactionErred(Event):
    """An error that no retry heals reached a transactional producer: it must abort, or, if is_fatal, end."""

    client_id: str
    transactional_id: str
    transaction: str
    error_code: int
    is_fatal: bool


class TransactionOffsetSent(Event):
    """A producer wants to commit a group's offset with its transaction. generation_id is -1 where it names no member."""

    client_id: str
    transaction: str
    producer_id: int
    producer_epoch: int
    group_id: str
    generation_id: int
    topic: str
    partition: int
    offset: int


class TransactionOffsetAccepted(Event):
    """The group's coordinator has taken the offset; it is pending until the transaction ends."""

    client_id: str
    transaction: str
    producer_id: int
    producer_epoch: int
    group_id: str
    topic: str
    partition: int
    offset: int


class MemberStable(Event):
    """A member of a group knows its assignment in a generation: a list with commas of TOPIC-PARTITION."""

    client_id: str
    group_id: str
    member_id: str
    generation_id: int
    assignment: str


class MembershipLost(Event):
    """A member is none any more, or its generation is over: error_code says why."""

    client_id: str
    group_id: str
    generation_id: int
    error_code: int


class OffsetsAsked(Event):
    """A consumer asks where its group goes on; question counts its questions."""

    client_id: str
    group_id: str
    question: int
    is_stable: bool


class OffsetLearned(Event):
    """The answer for one partition: the offset (-1: none is committed), or an error, UNSTABLE_OFFSET_COMMIT (88) while a transaction is open."""

    client_id: str
    group_id: str
    question: int
    topic: str
    partition: int
    offset: int
    error_code: int
    is_stable: bool


class OffsetCommitSent(Event):
    """A consumer commits an offset without a transaction."""

    client_id: str
    group_id: str
    topic: str
    partition: int
    offset: int


class CopyExpected(Event):
    """Each record of the input topic shall become one committed record of the output topic, with the same key."""

    input_topic: str
    output_topic: str


class CopyRead(Event):
    """A read_committed reader has come to the end of a topic, after all work was done: what it has not returned is not there."""

    client_id: str
    topic: str


class CopiesCounted(Event):
    """What a stretch of exactly-once copying cost: a row of the table that sets producers per task beside producers per thread."""

    variant: str
    input_partitions: int
    threads: int
    producers: int
    connections: int
    transactions: int
    records: int
    virtual_ms: int
