"""The state of transactional ids: their states and transitions, one entry each, their records, and
the entries of one `__transaction_state` partition.

Nothing here decides: `rules_coordinator` returns the next facts, `TransactionEntry` holds them as a
pending transition until their record is replicated.
Source: KIP-98, KIP-890; org.apache.kafka.coordinator.transaction.{TransactionState,
TransactionMetadata, TxnTransitMetadata, TransactionLog, TransactionStateManager}.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from protocol.coordinator.registry import CoordinatorTopic, build_record, parse_record
from protocol.coordinator.transactions import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from protocol.records.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, RecordBatch

# --------------------------------------------------------------------------------------------------
# States, and the valid transitions between them


class TransactionState(IntEnum):
    """The status in a record. `label` is the name in DescribeTransactions."""

    EMPTY = 0
    """No transaction since the producer was initialized."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """Prepared: the result is final, only the markers are pending."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """All markers are written."""
    COMPLETE_ABORT = 5
    DEAD = 6
    """About to expire; never in the log."""
    PREPARE_EPOCH_FENCE = 7
    """The producer is being fenced before its transaction is aborted; never in the log."""

    @property
    def label(self) -> str:
        """Kafka's name of the state."""
        return "".join(part.capitalize() for part in self.name.split("_"))


EMPTY: Final = TransactionState.EMPTY
ONGOING: Final = TransactionState.ONGOING
PREPARE_COMMIT: Final = TransactionState.PREPARE_COMMIT
PREPARE_ABORT: Final = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT: Final = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT: Final = TransactionState.COMPLETE_ABORT
DEAD: Final = TransactionState.DEAD
PREPARE_EPOCH_FENCE: Final = TransactionState.PREPARE_EPOCH_FENCE

AT_REST: Final = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
"""No transaction: a producer can be initialized, a transaction started, the id expired."""
PREPARED: Final = (PREPARE_COMMIT, PREPARE_ABORT)
"""Prepared, with markers pending."""

ENTERED_FROM: Final[Mapping[TransactionState, tuple[TransactionState, ...]]] = {
    EMPTY: AT_REST,
    ONGOING: (ONGOING, *AT_REST),
    PREPARE_COMMIT: (ONGOING,),
    PREPARE_ABORT: (
        ONGOING,
        PREPARE_EPOCH_FENCE,
        *AT_REST,
        # at rest: with transaction.version 2 only, where an abort without a transaction bumps the
        # epoch
    ),
    COMPLETE_COMMIT: (PREPARE_COMMIT,),
    COMPLETE_ABORT: (PREPARE_ABORT,),
    DEAD: AT_REST,
    PREPARE_EPOCH_FENCE: (ONGOING,),
}
"""state -> its valid previous states. Any other transition is a bug."""

COMPLETED: Final[Mapping[TransactionState, TransactionState]] = {
    PREPARE_COMMIT: COMPLETE_COMMIT,
    PREPARE_ABORT: COMPLETE_ABORT,
}
"""The completed state after all markers are written."""

STATE_BY_LABEL: Final[Mapping[str, TransactionState]] = {
    state.label: state for state in TransactionState
}


def may_enter(state: TransactionState, current: TransactionState) -> bool:
    """Return whether a transition is valid."""
    return current in ENTERED_FROM[state]


# --------------------------------------------------------------------------------------------------
# One transactional id: the committed facts, and a pending transition
#
# `begin` sets the pending state, which blocks other transitions; once the record is on all in-sync
# replicas, `finish` applies the new facts. If the record cannot be written, `give_up` reverts to
# the former state.

TopicPartition = tuple[str, int]
NO_TIME: Final = -1
NO_OFFSET: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFacts:
    """The content of a record.

    Partitions are in the order in which they were added, without those whose marker is written.

    With `next_producer_epoch` the producer has another identity than its open transaction, which no
    release writes (KIP-939): see `rules_two_phase_commit`.

    `transaction_version` is that of the producer's last request: with 2 the epoch was bumped with
    the last EndTxn. Times are wall milliseconds. `last_producer_epoch` is not in the record:
    another coordinator does not know it (KIP-360).
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: tuple[TopicPartition, ...] = ()
    start_ms: int = NO_TIME
    last_update_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    transaction_version: int = 0


class TransactionEntry:
    """One transactional id.

    `pending` is the state of a transition in progress, None without one.
    """

    __slots__ = (
        "_members",
        "facts",
        "has_failed_epoch_fence",
        "pending",
        "record_offset",
        "transactional_id",
    )

    def __init__(
        self, transactional_id: str, facts: TransactionFacts, record_offset: int = NO_OFFSET
    ) -> None:
        self.transactional_id = transactional_id
        self.facts = facts
        self.record_offset = record_offset
        """The offset of the record that the facts were loaded from; -1 if they were not loaded."""
        self.pending: TransactionState | None = None
        self.has_failed_epoch_fence = False
        """Whether the epoch was bumped to fence the producer, and the record failed: it is not
        bumped again (KAFKA-9666).
        """
        self._members = frozenset(facts.partitions)

    def contains(self, partition: TopicPartition) -> bool:
        """Return whether a partition is in the transaction."""
        return partition in self._members

    def begin(self, facts: TransactionFacts) -> None:
        """Start a transition to these facts."""
        assert self.pending is None, (
            f"{self.transactional_id}: {facts.state.label} while {self.pending} is pending"
        )
        assert may_enter(facts.state, self.facts.state), (
            f"{self.transactional_id}: {facts.state.label} after {self.facts.state.label}"
        )
        self.pending = facts.state

    def finish(self, facts: TransactionFacts) -> None:
        """The record of these facts is committed."""
        assert self.pending is facts.state, (
            f"{self.transactional_id}: {facts.state.label} is committed, {self.pending} is pending"
        )
        self.pending = None
        self.take(facts)

    def give_up(self) -> None:
        """The record could not be written: the transition is reverted."""
        self.pending = None

    def take(self, facts: TransactionFacts) -> None:
        """Set the facts."""
        self.facts = facts
        self._members = frozenset(facts.partitions)

    def marked(self, partitions: Collection[TopicPartition]) -> None:
        """The markers of some partitions are written, or not needed: remove the partitions."""
        assert self.facts.state in PREPARED, (
            f"{self.transactional_id}: a marker is written in {self.facts.state.label}"
        )
        gone = frozenset(partitions)
        self.take(
            replace(
                self.facts,
                partitions=tuple(each for each in self.facts.partitions if each not in gone),
            )
        )


def first_facts(producer_id: int, timeout_ms: int, now_ms: int) -> TransactionFacts:
    """Return the facts of a new id: a producer id, and no epoch yet."""
    return TransactionFacts(
        producer_id=producer_id,
        producer_epoch=NO_PRODUCER_EPOCH,
        timeout_ms=timeout_ms,
        state=EMPTY,
        last_update_ms=now_ms,
    )


# --------------------------------------------------------------------------------------------------
# The records of `__transaction_state`
#
# Values have version 0 until the cluster has transaction.version 1, then version 1 with its tagged
# fields.

PLAIN_VALUE: Final = 0
TAGGED_VALUE: Final = 1


def value_version(transaction_version: int) -> int:
    """Return the value version for a level of the feature transaction.version."""
    return TAGGED_VALUE if transaction_version >= 1 else PLAIN_VALUE


def facts_record(
    transactional_id: str, facts: TransactionFacts, version: int
) -> tuple[bytes, bytes | None]:
    """Return key and value of the record of these facts."""
    value = TransactionLogValue(
        producer_id=facts.producer_id,
        producer_epoch=facts.producer_epoch,
        transaction_timeout_ms=facts.timeout_ms,
        transaction_status=int(facts.state),
        transaction_partitions=None if facts.state is EMPTY else _by_topic(facts.partitions),
        transaction_last_update_timestamp_ms=facts.last_update_ms,
        transaction_start_timestamp_ms=facts.start_ms,
    )
    if version >= TAGGED_VALUE:
        value.client_transaction_version = facts.transaction_version
        value.previous_producer_id = facts.previous_producer_id
        value.next_producer_id = facts.next_producer_id
        value.next_producer_epoch = facts.next_producer_epoch
    return build_record(TransactionLogKey(transactional_id=transactional_id), value, version)


def tombstone(transactional_id: str) -> tuple[bytes, bytes | None]:
    """Return key and value of the tombstone of an id."""
    return build_record(TransactionLogKey(transactional_id=transactional_id), None)


def read_facts(value: TransactionLogValue) -> TransactionFacts:
    """Return the facts of a record."""
    partitions = tuple(
        (topic.topic, number)
        for topic in value.transaction_partitions or ()
        for number in topic.partition_ids
    )
    return TransactionFacts(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=partitions,
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        next_producer_epoch=value.next_producer_epoch,
        transaction_version=value.client_transaction_version,
    )


def _by_topic(partitions: tuple[TopicPartition, ...]) -> list[PartitionsSchema]:
    topics: dict[str, PartitionsSchema] = {}
    for topic, number in partitions:
        topics.setdefault(topic, PartitionsSchema(topic=topic)).partition_ids.append(number)
    return list(topics.values())


# --------------------------------------------------------------------------------------------------
# The entries of one `__transaction_state` partition, and their load from the log

BATCH_BYTES: Final = 16_384
ENDLESS_MS: Final = 2**31 - 1
"""The time-out in the record of an id whose producer participates in a two-phase commit
(TransactionMetadata.isDistributedTwoPhaseCommitTxn, since 4.1).
"""
TOMBSTONE_BYTES: Final = 32
"""The maximum size of a tombstone besides its id."""


class TransactionShard:
    """Entries by transactional id, in order of creation."""

    entry_class = TransactionEntry
    """The class of the entries."""
    has_endless = False
    """Whether transactions of a two-phase commit have no time-out."""

    def __init__(self) -> None:
        self.entries: dict[str, TransactionEntry] = {}

    def replay(self, batch: RecordBatch) -> None:
        """Replay a batch of the log; the last record of each id wins. Raises MalformedMessage."""
        if batch.is_control:
            return
        for record in batch.records():
            parsed = (
                None
                if record.key is None
                else parse_record(CoordinatorTopic.TRANSACTION_STATE, record.key, record.value)
            )
            match parsed:
                case (TransactionLogKey() as key, None):
                    self.forget(key.transactional_id)
                case (TransactionLogKey() as key, TransactionLogValue() as value):
                    self.learn(key.transactional_id, read_facts(value), record.offset)

    def learn(
        self, transactional_id: str, facts: TransactionFacts, record_offset: int = NO_OFFSET
    ) -> None:
        """Set the facts of an id from its last record."""
        self.entries[transactional_id] = self.entry_class(transactional_id, facts, record_offset)

    def forget(self, transactional_id: str) -> None:
        """Remove an id with a tombstone."""
        self.entries.pop(transactional_id, None)

    def known_or_new(
        self, transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int
    ) -> TransactionEntry:
        """Return the entry of an id; a new one is created with a producer id.

        It has no record until the first epoch is given.
        """
        entry = self.entries.get(transactional_id)
        if entry is None:
            entry = self.entries[transactional_id] = self.entry_class(
                transactional_id, first_facts(producer_id, timeout_ms, now_ms)
            )
        return entry

    # Periodic tasks
    # ----------------------------------------------------------------------------------------------

    def prepared(self) -> Iterator[TransactionEntry]:
        """Yield the entries with a prepared transaction, whose markers may be missing."""
        return (entry for entry in self.entries.values() if entry.facts.state in PREPARED)

    def timed_out(self, now_ms: int) -> list[TransactionEntry]:
        """Return the entries whose transaction has exceeded its timeout."""
        return [
            entry
            for entry in self.entries.values()
            if entry.pending is None
            and entry.facts.state is ONGOING
            and entry.facts.start_ms + entry.facts.timeout_ms < now_ms
            and not (self.has_endless and entry.facts.timeout_ms == ENDLESS_MS)
        ]

    def expired(self, now_ms: int, expiration_ms: int) -> list[list[TransactionEntry]]:
        """Return the entries without use for transactional.id.expiration.ms, grouped by batches of
        suitable size.
        """
        groups: list[list[TransactionEntry]] = []
        room = 0
        for entry in self.entries.values():
            if (
                entry.pending is None
                and entry.facts.state in AT_REST
                and entry.facts.last_update_ms <= now_ms - expiration_ms
            ):
                size = len(entry.transactional_id) + TOMBSTONE_BYTES
                if size > room:
                    groups.append([])
                    room = BATCH_BYTES
                groups[-1].append(entry)
                room -= size
        return groups


class TransactionShardSince41(TransactionShard):
    """The entries of 4.1 and later (KIP-939)."""

    has_endless = True
