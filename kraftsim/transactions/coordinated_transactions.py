"""One partition of `__transaction_state` that this broker leads: its transactional ids, and the log
that stores them.

A change takes effect once its record is on all in-sync replicas. The coordinator epoch is the
leader epoch of the partition.
Source: org.apache.kafka.coordinator.transaction.TransactionStateManager.appendTransactionToLog.
"""

from collections.abc import Callable, Mapping
from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.groups.coordinator_log import CoordinatorLog
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.rules_append import ALL_REPLICAS
from kraftsim.transactions.events import (
    TransactionalIdExpired,
    TransactionChangeGivenUp,
    TransactionLoaded,
    TransactionsLoaded,
    TransactionStateChanged,
)
from kraftsim.transactions.rules_coordinator import TransactionRules
from kraftsim.transactions.rules_state import (
    DEAD,
    NO_OFFSET,
    TransactionEntry,
    TransactionFacts,
    TransactionShard,
    facts_record,
    tombstone,
)
from kraftsim.world.interface import World
from protocol.errors import ErrorCode
from protocol.records.batches import RecordBatch, build_batch
from protocol.records.record import Record

OnStored = Callable[[ErrorCode], None]

MAPPED_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""How errors of the append are mapped for clients."""


class CoordinatedTransactions:
    """The transactional ids of one partition.

    While `is_loading`, requests fail with COORDINATOR_LOAD_IN_PROGRESS.
    """

    def __init__(
        self,
        world: World,
        hosted: HostedPartition,
        shard: TransactionShard,
        log: CoordinatorLog,
        rules: TransactionRules,
        value_version: Callable[[], int],
    ) -> None:
        self.hosted = hosted
        self.shard = shard
        self.coordinator_epoch = hosted.replica.leader_epoch
        self.is_loading = True
        self.is_over = False
        """The partition is unloaded: another broker is its coordinator, or this one is with a later
        epoch.
        """
        self._world = world
        self._log = log
        self._rules = rules
        self._value_version = value_version

    @property
    def number(self) -> int:
        """The number of the partition."""
        return self.hosted.partition

    def store(self, entry: TransactionEntry, facts: TransactionFacts, on_stored: OnStored) -> None:
        """Write a state transition, and complete it once the record is replicated; on an error it
        is dropped.
        """
        entry.begin(facts)
        record = facts_record(entry.transactional_id, facts, self._value_version())

        def on_end(error: ErrorCode, offset: int) -> None:
            if error is ErrorCode.NONE:
                entry.finish(self._rules.held(entry.facts, facts))
                self._emit_change(entry, offset)
            else:
                entry.give_up()
                self._emit_given_up(entry, offset, error)
            on_stored(error)

        self._append([record], facts.timeout_ms, on_end)

    def store_tombstones(self, entries: list[TransactionEntry], timeout_ms: int) -> None:
        """Expire transactional ids. They cannot be used until the tombstones are committed."""
        for entry in entries:
            entry.pending = DEAD

        def on_end(error: ErrorCode, offset: int) -> None:
            for index, entry in enumerate(entries):
                entry.give_up()
                if error is ErrorCode.NONE:
                    self.shard.forget(entry.transactional_id)
                    self._emit_expiry(entry, offset + index)
                else:
                    self._emit_given_up(
                        entry, offset if offset == NO_OFFSET else offset + index, error
                    )

        self._append([tombstone(entry.transactional_id) for entry in entries], timeout_ms, on_end)

    def _append(
        self,
        rows: list[tuple[bytes, bytes | None]],
        timeout_ms: int,
        on_end: Callable[[ErrorCode, int], None],
    ) -> None:
        """Append records in one batch; `on_end` receives the result and the offset of the first."""
        timestamp = self._world.clock.wall_ms()
        records = [Record(timestamp=timestamp, key=key, value=value) for key, value in rows]
        outcome = self._log.append(self.hosted, RecordBatch(build_batch(records)), ALL_REPLICAS)
        if isinstance(outcome, Refusal):
            on_end(MAPPED_ERRORS.get(outcome.error, outcome.error), NO_OFFSET)
            return
        first_offset = outcome.first_offset

        def on_replicated(error: ErrorCode) -> None:
            mapped = ErrorCode.NOT_COORDINATOR if self.is_over else MAPPED_ERRORS.get(error, error)
            on_end(mapped, first_offset)

        self._log.when_replicated(
            self.hosted, outcome.last_offset + 1, on_replicated, timeout_ms=timeout_ms
        )

    # Events
    # ----------------------------------------------------------------------------------------------

    def emit_loaded(self, next_offset: int) -> None:
        """Loading is complete: emit the state of each transactional id."""
        for entry in self.shard.entries.values():
            facts = entry.facts
            self._world.emit(
                TransactionLoaded(
                    transactional_id=entry.transactional_id,
                    producer_id=facts.producer_id,
                    producer_epoch=facts.producer_epoch,
                    state=facts.state.label,
                    partitions=partitions_text(facts),
                    coordinator_epoch=self.coordinator_epoch,
                    partition=self.number,
                    record_offset=entry.record_offset,
                )
            )
        self._world.emit(
            TransactionsLoaded(
                partition=self.number,
                coordinator_epoch=self.coordinator_epoch,
                transaction_count=len(self.shard.entries),
                next_offset=next_offset,
            )
        )

    def _emit_change(self, entry: TransactionEntry, offset: int) -> None:
        facts = entry.facts
        self._world.emit(
            TransactionStateChanged(
                transactional_id=entry.transactional_id,
                producer_id=facts.producer_id,
                producer_epoch=facts.producer_epoch,
                state=facts.state.label,
                partitions=partitions_text(facts),
                coordinator_epoch=self.coordinator_epoch,
                partition=self.number,
                offset=offset,
                transaction_version=facts.transaction_version,
                timeout_ms=facts.timeout_ms,
            )
        )

    def _emit_given_up(self, entry: TransactionEntry, offset: int, error: ErrorCode) -> None:
        self._world.emit(
            TransactionChangeGivenUp(
                transactional_id=entry.transactional_id,
                partition=self.number,
                coordinator_epoch=self.coordinator_epoch,
                offset=offset,
                error_code=int(error),
            )
        )

    def _emit_expiry(self, entry: TransactionEntry, offset: int) -> None:
        facts = entry.facts
        self._world.emit(
            TransactionalIdExpired(
                transactional_id=entry.transactional_id,
                producer_id=facts.producer_id,
                producer_epoch=facts.producer_epoch,
                partition=self.number,
                offset=offset,
                coordinator_epoch=self.coordinator_epoch,
            )
        )


def partitions_text(facts: TransactionFacts) -> str:
    """Return the partitions of a transaction in the format of events."""
    return ",".join(sorted(f"{topic}-{number}" for topic, number in facts.partitions))
