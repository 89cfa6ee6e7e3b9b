"""The state of one transactional id: the committed facts, and a pending transition.

A transition has two steps. `begin` sets the pending state, which blocks other transitions; once the
record is on all in-sync replicas, `finish` applies the new facts. If the record cannot be written,
`give_up` reverts to the former state.
Source: org.apache.kafka.coordinator.transaction.{TransactionMetadata, TxnTransitMetadata}.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from kraftsim.core.transactions.transaction_state import (
    EMPTY,
    PREPARED,
    TransactionState,
    may_enter,
)
from protocol.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

TopicPartition = tuple[str, int]
NO_TIME: Final = -1
NO_OFFSET: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFacts:
    """The content of a record.

    Partitions are in the order in which they were added, without those whose marker is written.

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
