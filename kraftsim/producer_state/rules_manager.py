"""The producer state of a partition: checks each batch against it, and updates it when the batch is
in the log.

Source: KIP-98, KIP-360, KIP-890; org.apache.kafka.storage.internals.log.{ProducerStateManager,
ProducerAppendInfo}.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import ClassVar

from kraftsim.core.decision import Refusal
from kraftsim.producer_state.rules_entries import (
    APPEND,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    CheckResult,
    Duplicate,
    ProducerAppend,
    ProducerStateEntry,
    ProducerStatePolicy,
    UnknownProducer,
    is_next_sequence,
)
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.records.batches import SEQUENCES, RecordBatch
from protocol.records.control_records import (
    ControlType,
    EndTxnMarker,
    build_transaction_marker,
    control_type,
    parse_control_record,
)
from protocol.records.record import MalformedBatch
from protocol.storage.indexes import AbortedTransaction

# --------------------------------------------------------------------------------------------------
# Transactions: open ones, and completed ones whose markers are not replicated yet
#
# Both limit the last stable offset: a marker that only the leader has may be lost with it, and then
# its transaction is open again.
# Source: ProducerStateManager (ongoingTxns, unreplicatedTxns, lastStableOffset),
# EndTransactionMarker.


@dataclass(frozen=True, slots=True)
class AppendedMarker:
    """The control record of a transaction's end."""

    is_abort: bool
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """A transaction from its first record to its marker, both inclusive."""

    first_offset: int
    marker_offset: int


class PartitionTransactions:
    """`open_transactions`: producer id -> first offset of its open transaction."""

    __slots__ = ("_open", "_unreplicated")

    def __init__(self, open_transactions: Mapping[int, int] | None = None) -> None:
        self._open: dict[int, int] = dict(
            sorted((open_transactions or {}).items(), key=lambda item: item[1])
        )
        """In the order of offsets, as they only grow."""
        self._unreplicated: list[CompletedTransaction] = []

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest transaction that is open or not replicated; None if there
        is none.
        """
        first_open = next(iter(self._open.values()), None)
        if not self._unreplicated:
            return first_open
        first_completed = min(each.first_offset for each in self._unreplicated)
        return first_completed if first_open is None else min(first_open, first_completed)

    @property
    def bind_readers(self) -> bool:
        """Whether any transaction is open or not replicated."""
        return bool(self._open or self._unreplicated)

    def is_open(self, producer_id: int) -> bool:
        """Return whether a producer has an open transaction here."""
        return producer_id in self._open

    def begin(self, producer_id: int, first_offset: int) -> None:
        """The first record of a transaction is in the log."""
        self._open[producer_id] = first_offset

    def end(
        self, producer_id: int, marker_offset: int, *, is_abort: bool
    ) -> AbortedTransaction | None:
        """The marker of a transaction is in the log.

        Returns its transaction index entry if it aborts one with records here.
        """
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return None  # KAFKA-10702: the transaction has no records here
        self._unreplicated.append(CompletedTransaction(first_offset, marker_offset))
        if not is_abort:
            return None
        return AbortedTransaction(
            producer_id=producer_id,
            first_offset=first_offset,
            last_offset=marker_offset,
            last_stable_offset=next(iter(self._open.values()), marker_offset + 1),
        )

    def forget(self, producer_id: int) -> None:
        """Drop the open transaction of a removed producer."""
        self._open.pop(producer_id, None)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Drop the completed transactions with markers below it."""
        if self._unreplicated:
            self._unreplicated = [
                each for each in self._unreplicated if each.marker_offset >= high_watermark
            ]


def marker_of(batch: RecordBatch) -> AppendedMarker | None:
    """Return the marker of a control batch of a producer; None if compaction removed it, or if it
    is another one.

    Raises MalformedBatch.
    """
    record = next(batch.records(), None)
    if record is None:
        return None
    key, value = record.key, record.value
    try:
        return _marker_in(
            None if key is None else bytes(key), None if value is None else bytes(value)
        )
    except MalformedMessage as malformed:
        raise MalformedBatch(
            f"the marker at offset {batch.base_offset}: {malformed}", batch.position
        ) from malformed


@lru_cache(maxsize=64)
def _marker_in(key: bytes | None, value: bytes | None) -> AppendedMarker | None:
    """Parse the control record of a transaction's end.

    All markers of a coordinator have the same few contents.
    """
    kind = control_type(key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    marker = parse_control_record(key, value)
    assert isinstance(marker, EndTxnMarker), "its type is COMMIT or ABORT"
    return AppendedMarker(kind is ControlType.ABORT, marker.coordinator_epoch)


# --------------------------------------------------------------------------------------------------
# Pending verifications: producers about to write the first records of a transaction, while the
# coordinator verifies it
#
# A verification and its append are bound by a guard. The first records of the transaction, or any
# marker, invalidate the guard: a verification that completes after a marker belongs to a completed
# transaction, and must not start another one (KAFKA-14884). Besides, the lowest sequence seen has
# to be written first: were a later batch written first, the earlier one would be out of order
# permanently (KAFKA-14920).
# Source: KIP-890, org.apache.kafka.storage.internals.log.{VerificationStateEntry,
# VerificationGuard}, UnifiedLog.maybeStartTransactionVerification.


class Verification:
    """The state of a producer from the first verification to the first record.

    `begun_ms` is the wall clock.
    """

    __slots__ = ("adds", "begun_ms", "guard", "lowest_sequence", "producer_epoch")

    def __init__(
        self, guard: int, producer_epoch: int, base_sequence: int, begun_ms: int, *, adds: bool
    ) -> None:
        self.guard = guard
        self.adds = adds
        """Whether the coordinator adds the partition: then each transaction of the producer has its
        own epoch and starts its own sequences.
        """
        self.producer_epoch = producer_epoch
        self.lowest_sequence = base_sequence
        self.begun_ms = begun_ms

    def take(self, producer_epoch: int, base_sequence: int) -> None:
        """Another batch waits as well: of a later epoch, or of this one."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch, self.lowest_sequence = producer_epoch, base_sequence
        elif producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, base_sequence)


class Verifications:
    """By producer id. Guards are unique."""

    __slots__ = ("_begun", "_last_guard")

    def __init__(self) -> None:
        self._begun: dict[int, Verification] = {}
        self._last_guard = 0

    def begin(
        self, producer_id: int, producer_epoch: int, base_sequence: int, now_ms: int, *, adds: bool
    ) -> int:
        """Return the guard of a producer: the existing one until something is written.

        `now_ms` is the wall clock.
        """
        known = self._begun.get(producer_id)
        if known is None:
            self._last_guard += 1
            self._begun[producer_id] = Verification(
                self._last_guard, producer_epoch, base_sequence, now_ms, adds=adds
            )
            return self._last_guard
        known.take(producer_epoch, base_sequence)
        return known.guard

    def holds(self, producer_id: int, guard: int | None) -> bool:
        """Return whether a guard is the current one of its producer."""
        known = self._begun.get(producer_id)
        return known is not None and known.guard == guard

    def of(self, producer_id: int) -> Verification | None:
        """Return the pending verification of a producer."""
        return self._begun.get(producer_id)

    def end(self, producer_id: int) -> None:
        """The first records or the marker of a transaction were written."""
        self._begun.pop(producer_id, None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Remove verifications without a write for this long. `now_ms` is the wall clock."""
        for producer_id in [
            each for each, begun in self._begun.items() if now_ms - begun.begun_ms >= expiration_ms
        ]:
            del self._begun[producer_id]


# --------------------------------------------------------------------------------------------------
# The check, and its application
#
# A check does not change the state: it changes only when the bytes are written (`apply`), else the
# retry after a failed append would look like a duplicate and be lost (KAFKA-6683).

BUMPS_EPOCHS = 2
"""The transaction.version since which each transaction end bumps the epoch."""
LAST_PRODUCER_EPOCH = 32767


class ProducerStateManager:
    """`check` a client's batch, `apply` it once it is in the log; `replay` batches from a log
    without a check.
    """

    __slots__ = ("_entries", "_policy", "_transactions", "_verifications", "is_new_log")
    entry_class = ProducerStateEntry
    """The type of the entries."""

    def __init__(self, policy: ProducerStatePolicy) -> None:
        self.is_new_log = False
        """Whether the log never had a record."""
        self._policy = policy
        self._entries: dict[int, ProducerStateEntry] = {}
        self._transactions = PartitionTransactions()
        self._verifications = Verifications()

    def use_policy(self, policy: ProducerStatePolicy) -> None:
        """Use another policy from now on."""
        self._policy = policy

    @property
    def entries(self) -> Mapping[int, ProducerStateEntry]:
        """The entries by producer id; read-only."""
        return MappingProxyType(self._entries)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest transaction that is open, or whose marker is not
        replicated; None if there is none.
        """
        return self._transactions.first_unstable_offset

    @property
    def has_transactions(self) -> bool:
        """Whether a transaction is open, or its marker is not replicated."""
        return self._transactions.bind_readers

    def on_high_watermark(self, high_watermark: int) -> None:
        """Advance the high watermark: transactions with markers below it are no longer unstable."""
        self._transactions.on_high_watermark(high_watermark)

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        now_ms: int,
        *,
        adds: bool = False,
    ) -> int | Refusal | None:
        """Return the guard of an append that needs verification by the coordinator; None if it does
        not.

        An open transaction is already verified. `adds`: the coordinator adds the partition, so a
        request is needed in any case. `base_sequence` is -1 for offsets, `now_ms` is the wall
        clock. Fails with INVALID_PRODUCER_EPOCH (since 4.0).
        """
        if not (adds or self._policy.verifies_transactions):
            return None
        refusal = (
            self._refuse_past_epoch(producer_id, producer_epoch)
            if self._policy.transactions_have_epochs
            else None
        )
        if refusal is not None or self._is_open(producer_id, producer_epoch):
            return refusal
        return self._verifications.begin(
            producer_id, producer_epoch, base_sequence, now_ms, adds=adds
        )

    def check(self, batch: RecordBatch, guard: int | None = None) -> CheckResult:
        """Check a client's batch. `guard` is the result of `begin_verification`, if any.

        Fails with INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_TXN_STATE; before
        2.5 also UNKNOWN_PRODUCER_ID.
        """
        producer_id = batch.producer_id
        if producer_id < 0:
            return APPEND
        entry = self._entries.get(producer_id)
        base_sequence = batch.base_sequence
        if entry is not None and entry.producer_epoch == batch.producer_epoch:
            copy = entry.retained_copy(base_sequence, batch.last_sequence)
            if copy is not None:
                return Duplicate(
                    first_offset=copy.first_offset,
                    last_offset=copy.last_offset,
                    log_append_time_ms=copy.max_timestamp,
                )
        if batch.is_transactional:
            refusal = self._refuse_unverified(batch, guard)
            if refusal is not None:
                return refusal
        verdict = self._check_sequence(entry, batch.producer_epoch, base_sequence, producer_id)
        if self.is_new_log and verdict is APPEND and base_sequence > 0:
            verdict = self._check_first(base_sequence, producer_id)
        if (
            verdict is APPEND
            and self._transactions.is_open(producer_id)
            and not batch.is_transactional
        ):
            return Refusal(
                ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} has a transaction open here"
            )
        return verdict

    def check_coordinated(self, batch: RecordBatch, guard: int | None = None) -> Refusal | None:
        """Check a batch of a group coordinator, without sequences.

        Fails with INVALID_PRODUCER_EPOCH or INVALID_TXN_STATE.
        """
        producer_id = batch.producer_id
        if producer_id < 0:
            return None
        refusal = self._refuse_unverified(batch, guard) if batch.is_transactional else None
        return refusal or self._refuse_past_epoch(producer_id, batch.producer_epoch)

    def _refuse_unverified(self, batch: RecordBatch, guard: int | None) -> Refusal | None:
        """Check that the first records of a transaction are verified and the guard is current;
        return the error if not.
        """
        if not self._policy.verifies_transactions or self._is_open(
            batch.producer_id, batch.producer_epoch
        ):
            return None
        if self._verifications.holds(batch.producer_id, guard):
            return None
        return self._refuse_timed_out(batch) or Refusal(
            ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction"
        )

    def _refuse_timed_out(self, batch: RecordBatch) -> Refusal | None:
        """Return the error of a batch whose transaction has timed out since it was verified: its
        epoch is past, which a producer can handle (KAFKA-19690). None: that is not reported first.
        """
        if not self._policy.checks_epochs_first:
            return None
        return self._refuse_past_epoch(batch.producer_id, batch.producer_epoch)

    def _is_open(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether a producer has an open transaction here; since 4.0 one of another epoch is
        a different one.
        """
        if not self._transactions.is_open(producer_id):
            return False
        return (
            not self._policy.transactions_have_epochs
            or self._entries[producer_id].producer_epoch == producer_epoch
        )

    def _refuse_past_epoch(self, producer_id: int, producer_epoch: int) -> Refusal | None:
        entry = self._entries.get(producer_id)
        if entry is None or producer_epoch >= entry.producer_epoch:
            return None
        return Refusal(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {producer_id}: epoch {producer_epoch}, seen {entry.producer_epoch}",
        )

    def check_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        transaction_version: int = 0,
    ) -> Refusal | None:
        """Check a coordinator's marker.

        Fails with INVALID_PRODUCER_EPOCH, or TRANSACTION_COORDINATOR_FENCED by a later coordinator.

        With `transaction_version` 2 the epoch was bumped for the marker: an epoch with records
        belongs to a later transaction (since 4.2).
        """
        refusal = self._refuse_past_epoch(producer_id, producer_epoch)
        if refusal is not None:
            return refusal
        entry = self._entries.get(producer_id)
        if entry is None:
            return None
        if transaction_version >= BUMPS_EPOCHS and self._is_marker_overtaken(entry, producer_epoch):
            return Refusal(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id}: epoch {producer_epoch} has a transaction open here",
            )
        if coordinator_epoch < entry.coordinator_epoch:
            why = (
                f"producer {producer_id}: coordinator epoch {coordinator_epoch}, seen "
                f"{entry.coordinator_epoch}"
            )
            return Refusal(ErrorCode.TRANSACTION_COORDINATOR_FENCED, why)
        return None

    def _is_marker_overtaken(self, entry: ProducerStateEntry, producer_epoch: int) -> bool:
        """Return whether a marker, whose epoch was bumped for it, is of an earlier transaction than
        the open one.

        A marker that is repeated finds its epoch without records, and is written again.
        """
        return (
            producer_epoch == entry.producer_epoch
            and entry.first_transaction_offset is not None
            and producer_epoch != LAST_PRODUCER_EPOCH
        )

    def apply(
        self, batch: RecordBatch, base_offset: int, append_timestamp: int | None = None
    ) -> AbortedTransaction | None:
        """Record an appended batch at base_offset, without a check.

        `append_timestamp` (wall milliseconds) replaces the batch's maximum timestamp with
        message.timestamp.type=LogAppendTime. Returns the transaction index entry if the batch is
        the marker that aborts a transaction with records.
        """
        producer_id = batch.producer_id
        if producer_id < 0:
            return None
        marker = None
        if batch.is_control:
            marker = marker_of(batch)
            if marker is None:
                return None  # compaction has removed it: no record of the transaction is left
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = self.entry_class(producer_id, batch.producer_epoch)
        elif entry.producer_epoch != batch.producer_epoch:
            entry.take_epoch(batch.producer_epoch)
        is_transactional = batch.is_transactional
        if is_transactional:
            self._verifications.end(producer_id)
        max_timestamp = batch.max_timestamp if append_timestamp is None else append_timestamp
        if marker is not None:
            return self._end_transaction(entry, marker, base_offset, max_timestamp)
        offset_delta = batch.last_offset_delta
        entry.add_batch(
            batch.last_sequence, base_offset + offset_delta, offset_delta, max_timestamp
        )
        if is_transactional and entry.first_transaction_offset is None:
            entry.first_transaction_offset = base_offset
            self._transactions.begin(producer_id, base_offset)
        return None

    def replay(self, batch: RecordBatch) -> AbortedTransaction | None:
        """Record a batch from a log, at its offset (origin REPLICATION)."""
        return self.apply(batch, batch.base_offset)

    def load(self, entries: Iterable[ProducerStateEntry], now_ms: int) -> None:
        """Load the entries of a snapshot that are not expired (wall clock); replaces the state."""
        self._entries = {
            entry.producer_id: entry for entry in entries if not self._has_expired(entry, now_ms)
        }
        self._transactions = PartitionTransactions(
            {
                entry.producer_id: entry.first_transaction_offset
                for entry in self._entries.values()
                if entry.first_transaction_offset is not None
            }
        )

    def on_log_start(self, log_start_offset: int) -> None:
        """The log start offset advances; before 2.4 (KAFKA-7190) producers without a batch from
        there on are removed, with their transactions.

        A producer with a remaining batch keeps its earlier ones, too: Kafka drops them from a copy
        (ProducerStateEntry.removeBatchesOlderThan).
        """
        if self._policy.keeps_deleted:
            return
        for producer_id in [
            each.producer_id
            for each in self._entries.values()
            if each.last_offset < log_start_offset
        ]:
            del self._entries[producer_id]
            self._transactions.forget(producer_id)
        self._transactions.on_high_watermark(log_start_offset)

    def empty_copy(self) -> "ProducerStateManager":
        """Return an empty state with the same policy."""
        return type(self)(self._policy)

    @property
    def expiration_ms(self) -> int:
        """The time after which a producer without batches expires."""
        return self._policy.expiration_ms

    def expire(self, now_ms: int) -> list[int]:
        """Remove producers without a batch for producer.id.expiration.ms (wall clock against the
        batches' timestamps), and return their ids.
        """
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if self._has_expired(entry, now_ms)
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        self._verifications.expire(now_ms, self._policy.expiration_ms)
        return expired

    def _has_expired(self, entry: ProducerStateEntry, now_ms: int) -> bool:
        return (
            entry.first_transaction_offset is None
            and now_ms - entry.last_timestamp >= self._policy.expiration_ms
        )

    def _check_sequence(
        self,
        entry: ProducerStateEntry | None,
        producer_epoch: int,
        base_sequence: int,
        producer_id: int,
    ) -> ProducerAppend | Refusal:
        known_epoch = entry.producer_epoch if entry is not None else NO_PRODUCER_EPOCH
        last_sequence = entry.last_sequence if entry is not None else NO_SEQUENCE
        verification = self._verifications.of(producer_id)
        if verification is not None and producer_epoch >= known_epoch:
            expected = (
                0
                if verification.adds and last_sequence == NO_SEQUENCE
                else verification.lowest_sequence
            )
            if base_sequence > expected:
                why = (
                    f"producer {producer_id}: sequence {base_sequence} while {expected} is "
                    "pending verification"
                )
                return Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why)
        if producer_epoch == known_epoch:
            if is_next_sequence(last_sequence, base_sequence):
                return APPEND
            return self._refuse_order(entry, last_sequence, base_sequence, producer_id)
        if producer_epoch < known_epoch:
            return Refusal(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id}: epoch {producer_epoch}, seen {known_epoch}",
            )
        if base_sequence == 0:
            return APPEND
        if known_epoch == NO_PRODUCER_EPOCH:
            return self._check_unknown(base_sequence, producer_id)
        why = (
            f"producer {producer_id}: epoch {producer_epoch} starts with sequence "
            f"{base_sequence} instead of 0"
        )
        return Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why)

    def _refuse_order(
        self,
        entry: ProducerStateEntry | None,
        last_sequence: int,
        base_sequence: int,
        producer_id: int,
    ) -> Refusal:
        why = f"producer {producer_id}: sequence {base_sequence} after {last_sequence}"
        forgot_its_batches = entry is not None and last_sequence == NO_SEQUENCE
        if (
            forgot_its_batches
            and self._policy.unknown_producer is UnknownProducer.UNKNOWN_PRODUCER_ID
        ):
            return Refusal(ErrorCode.UNKNOWN_PRODUCER_ID, why)  # KAFKA-7298, up to 2.4
        return Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why)

    def _check_first(self, base_sequence: int, producer_id: int) -> ProducerAppend | Refusal:
        """Check a sequence other than 0 of the first batch of a log: the one before it may be on
        its way, and could never be appended after this one.
        """
        if self._policy.unknown_producer is not UnknownProducer.OUT_OF_ORDER_IN_NEW_LOGS:
            return APPEND
        why = f"producer {producer_id} starts a new log with sequence {base_sequence}"
        return Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why)

    def _check_unknown(self, base_sequence: int, producer_id: int) -> ProducerAppend | Refusal:
        why = f"producer {producer_id} is unknown and starts with sequence {base_sequence}"
        match self._policy.unknown_producer:
            case UnknownProducer.ACCEPTED | UnknownProducer.OUT_OF_ORDER_IN_NEW_LOGS:
                return APPEND
            case UnknownProducer.UNKNOWN_PRODUCER_ID:
                return Refusal(ErrorCode.UNKNOWN_PRODUCER_ID, why)
            case UnknownProducer.OUT_OF_ORDER:
                return Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why)

    def _end_transaction(
        self, entry: ProducerStateEntry, marker: AppendedMarker, offset: int, timestamp: int
    ) -> AbortedTransaction | None:
        entry.last_timestamp = timestamp
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.first_transaction_offset = None
        return self._transactions.end(entry.producer_id, offset, is_abort=marker.is_abort)


# --------------------------------------------------------------------------------------------------
# The variant of KIP-758 (never adopted): only the latest batch of each producer is retained, and
# the broker does not limit in-flight requests
#
# A batch that ends at the latest sequence, or up to max.in.flight.sequence.number.per.connection
# sequences behind it, is a duplicate, as batches are appended in order. This follows from the range
# alone, without a retained batch. So a faulty producer that sends sequences which it never used,
# from before the wrap-around, gets DUPLICATE_SEQUENCE_NUMBER: Apache Kafka, with its five batches,
# refuses them.


class LatestBatchEntry(ProducerStateEntry, gc=False, eq=False):
    """Retains one batch."""

    retained_max: ClassVar[int] = 1


class LatestBatchStateManager(ProducerStateManager):
    """Checks by the latest batch: its duplicate has an offset, sequences behind it are
    DUPLICATE_SEQUENCE_NUMBER, the rest is unchanged.
    """

    __slots__ = ()
    entry_class = LatestBatchEntry

    def check(self, batch: RecordBatch, guard: int | None = None) -> CheckResult:
        """Check a client's batch; also returns DUPLICATE_SEQUENCE_NUMBER: it is in the log, at an
        unknown offset.
        """
        verdict = super().check(batch, guard)
        if (
            not isinstance(verdict, Refusal)
            or verdict.error is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        ):
            return verdict
        entry = self._entries.get(batch.producer_id)
        if (
            entry is None
            or entry.producer_epoch != batch.producer_epoch
            or entry.last_sequence == NO_SEQUENCE
        ):
            return verdict
        behind = (entry.last_sequence - batch.last_sequence) % SEQUENCES
        if behind >= self._policy.sequences_behind:
            return verdict
        why = (
            f"producer {batch.producer_id}: sequence {batch.last_sequence} is {behind} behind "
            f"{entry.last_sequence}"
        )
        return Refusal(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, why)


class LatestBatchRepeated(LatestBatchStateManager):
    """The other reading of the text, which does not define the response to an exact duplicate:
    DUPLICATE_SEQUENCE_NUMBER with its offset.
    """

    __slots__ = ()

    def check(self, batch: RecordBatch, guard: int | None = None) -> CheckResult:
        """Check a client's batch."""
        verdict = super().check(batch, guard)
        return (
            replace(verdict, error=ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
            if isinstance(verdict, Duplicate)
            else verdict
        )


# --------------------------------------------------------------------------------------------------
# Transaction markers: the control batch that a transaction coordinator writes
#
# Source: MemoryRecords.withEndTransactionMarker.


@dataclass(frozen=True, slots=True, kw_only=True)
class EndMarker:
    """`coordinator_epoch`: the leader epoch of the coordinator's partition, which fences older
    coordinators.

    `transaction_version`: 2 if the epoch was bumped for this marker; it is not stored in the batch.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int = 0

    def batch(self, now_ms: int) -> RecordBatch:
        """Return the control batch. `now_ms` is the wall clock."""
        built = build_transaction_marker(
            commits=self.is_commit,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            coordinator_epoch=self.coordinator_epoch,
            timestamp=now_ms,
        )
        return RecordBatch(built)


def end_marker_of(batch: RecordBatch) -> EndMarker | None:
    """Return the marker of a control batch; None if compaction removed it.

    Raises MalformedBatch.
    """
    marker = marker_of(batch)
    if marker is None:
        return None
    return EndMarker(
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        is_commit=not marker.is_abort,
    )
