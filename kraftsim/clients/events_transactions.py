"""Requests of transactional producers and group members, and their results, from their own view.

`transaction` names one transaction of one producer, 'CLIENT_ID/NUMBER'; RecordSent has that of its
record.
Source: KIP-98, KIP-447, KIP-890.
"""

from kraftsim.events.event import Event


class InitProducerIdSent(Event):
    """A producer sends InitProducerId for its transactional id: with the identity whose epoch it
    wants to bump (KIP-360), or without one (-1), which fences earlier producers.
    """

    client_id: str
    transactional_id: str
    producer_id: int
    producer_epoch: int


class TransactionalIdTaken(Event):
    """A producer has initialised a transactional id: producers with a smaller epoch are fenced from
    now on.
    """

    client_id: str
    transactional_id: str
    producer_id: int
    producer_epoch: int


class TransactionBegun(Event):
    """A producer begins a transaction; no request is sent for that."""

    client_id: str
    transactional_id: str
    transaction: str
    producer_id: int
    producer_epoch: int


class TransactionEndAsked(Event):
    """The application commits or aborts its transaction; up to here a read_committed reader must
    not see it.
    """

    client_id: str
    transactional_id: str
    transaction: str
    is_commit: bool


class TransactionEnded(Event):
    """The outcome of a transaction as the application knows it: committed, aborted, or unknown (it
    was fenced, failed, or crashed meanwhile).
    """

    client_id: str
    transactional_id: str
    transaction: str
    producer_id: int
    producer_epoch: int
    outcome: str
    error_code: int


class TransactionPrepared(Event):
    """All records of a transaction are acknowledged: its participant of a two-phase commit tells
    the database the producer id and epoch of the transaction, which name it (KIP-939).
    """

    client_id: str
    transactional_id: str
    transaction: str
    producer_id: int
    producer_epoch: int


class TransactionFound(Event):
    """A participant got the open transaction of the producer before it: the producer id and epoch
    of that transaction, -1 if there is none.
    """

    client_id: str
    transactional_id: str
    producer_id: int
    producer_epoch: int


class DatabaseCommitted(Event):
    """A database committed its part of a two-phase commit, with the prepared transaction of its
    participant; `record_keys` are those of the records in it, separated by spaces.
    """

    client_id: str
    transactional_id: str
    transaction: str
    producer_id: int
    producer_epoch: int
    record_keys: str


class DatabaseCompared(Event):
    """An audit compared the rows of a database with the records of a topic, both from their
    beginning: how many keys are in both, and which in one only, separated by spaces.
    """

    topic: str
    key_count: int
    only_in_database: str
    only_in_topic: str


class TransactionErred(Event):
    """A transactional producer received an error that is not retriable: it must abort, or, if
    is_fatal, close. `api` is what it asked for, empty if the client does not tell.
    """

    client_id: str
    transactional_id: str
    transaction: str
    error_code: int
    is_fatal: bool
    api: str = ""


class TransactionOffsetSent(Event):
    """A producer wants to commit a group's offset with its transaction. generation_id is -1 without
    member metadata.
    """

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
    """The group's coordinator has accepted the offset; it is pending until the transaction ends."""

    client_id: str
    transaction: str
    producer_id: int
    producer_epoch: int
    group_id: str
    topic: str
    partition: int
    offset: int


class MemberStable(Event):
    """A member of a group knows its assignment in a generation: a comma-separated list of
    TOPIC-PARTITION.
    """

    client_id: str
    group_id: str
    member_id: str
    generation_id: int
    assignment: str


class PartitionTaken(Event):
    """A member of a consumer group owns a partition in a member epoch: once for each partition
    whenever its epoch or its assignment changes.

    owner is the group instance id, or, without one, the member id.
    """

    client_id: str
    group_id: str
    member_id: str
    owner: str
    member_epoch: int
    topic: str
    partition: int


class MembershipLost(Event):
    """A member was removed from its group, or its generation has ended: error_code is the cause."""

    client_id: str
    group_id: str
    generation_id: int
    error_code: int


class OffsetsAsked(Event):
    """A consumer fetches the committed offsets of its group; question counts these requests."""

    client_id: str
    group_id: str
    question: int
    is_stable: bool


class OffsetLearned(Event):
    """The answer for one partition: the offset (-1: none is committed), or an error,
    UNSTABLE_OFFSET_COMMIT (88) while a transaction is open.
    """

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
    """Each record of the input topic must become one committed record of the output topic, with the
    same key.
    """

    input_topic: str
    output_topic: str


class CopyRead(Event):
    """A read_committed reader has reached the end of a topic, after all work was done: records that
    it has not returned are missing.
    """

    client_id: str
    topic: str


class CopiesCounted(Event):
    """The costs of an exactly-once application for a while: a row of the table that compares
    producers per task with producers per thread.
    """

    variant: str
    input_partitions: int
    threads: int
    producers: int
    connections: int
    transactions: int
    records: int
    virtual_ms: int
