"""The producer state of one partition: checks whether a batch is new, duplicate or refused, and records the appended batches.

A check does not change the state: it changes only when the bytes are written (`apply`), else the retry after a failed append would look like a
duplicate and be lost (KAFKA-6683).   Source: ProducerStateManager, ProducerAppendInfo.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from kraftsim.core.decision import Refusal
from kraftsim.core.producer_state.check_result import APPEND, Append, CheckResult, Duplicate
from kraftsim.core.producer_state.entry import NO_PRODUCER_EPOCH, ProducerStateEntry
from kraftsim.core.producer_state.policy import ProducerStatePolicy, UnknownProducer
from kraftsim.core.producer_state.sequence import NO_SEQUENCE, is_next_sequence
from kraftsim.core.producer_state.transactions import Marker, PartitionTransactions, marker_of
from kraftsim.core.producer_state.verification import Verifications
from protocol.batches import RecordBatch
from protocol.disk.transaction_index import AbortedTransaction
from protocol.errors import ErrorCode

BUMPS_EPOCHS = 2
"""The transaction.version since which each transaction end bumps the epoch."""
LAST_PRODUCER_EPOCH = 32767


class ProducerStateManager:
    """`check` a client's batch, `apply` it once it is in the log; `replay` batches from a log without a check."""

    __slots__ = ("_entries", "_policy", "_transactions", "_verifications")
    entry_class = ProducerStateEntry
    """The type of the entries."""

    def __init__(self, policy: ProducerStatePolicy) -> None:
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
        """The first offset of the oldest transaction that is open, or whose marker is not replicated; None if there is none."""
        return self._transactions.first_unstable_offset

    @property
    def has_transactions(self) -> bool:
        """Whether a transaction is open, or its marker is not replicated."""
        return self._transactions.bind_readers

    def on_high_watermark(self, high_watermark: int) -> None:
        """Advance the high watermark: transactions with markers below it are no longer unstable."""
        self._transactions.on_high_watermark(high_watermark)

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, now_ms: int, *, adds: bool = False
    ) -> int | Refusal | None:
        """Return the guard of an append that needs verification by the coordinator; None if it does not.

        An open transaction is already verified. `adds`: the coordinator adds the partition, so a request is needed in any case.
        `base_sequence` is -1 for offsets, `now_ms` is the wall clock. Fails with INVALID_PRODUCER_EPOCH (since 4.0).
        """
        if not (adds or self._policy.verifies_transactions):
            return None
        refusal = self._refuse_past_epoch(producer_id, producer_epoch) if self._policy.transactions_have_epochs else None
        if refusal is not None or self._is_open(producer_id, producer_epoch):
            return refusal
        return self._verifications.begin(producer_id, producer_epoch, base_sequence, now_ms, adds=adds)

    def check(self, batch: RecordBatch, guard: int | None = None) -> CheckResult:
        """Check a client's batch. `guard` is the result of `begin_verification`, if any.

        Fails with INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_TXN_STATE; before 2.5 also UNKNOWN_PRODUCER_ID.
        """
        producer_id = batch.producer_id
        if producer_id < 0:
            return APPEND
        entry = self._entries.get(producer_id)
        base_sequence = batch.base_sequence
        if entry is not None and entry.producer_epoch == batch.producer_epoch:
            copy = entry.retained_copy(base_sequence, batch.last_sequence)
            if copy is not None:
                return Duplicate(first_offset=copy.first_offset, last_offset=copy.last_offset, log_append_time_ms=copy.max_timestamp)
        if batch.is_transactional:
            refusal = self._refuse_unverified(batch, guard)
            if refusal is not None:
                return refusal
        verdict = self._check_sequence(entry, batch.producer_epoch, base_sequence, producer_id)
        if verdict is APPEND and self._transactions.is_open(producer_id) and not batch.is_transactional:
            return Refusal(ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} has a transaction open here")
        return verdict

    def check_coordinated(self, batch: RecordBatch, guard: int | None = None) -> Refusal | None:
        """Check a batch of a group coordinator, without sequences. Fails with INVALID_PRODUCER_EPOCH or INVALID_TXN_STATE."""
        producer_id = batch.producer_id
        if producer_id < 0:
            return None
        refusal = self._refuse_unverified(batch, guard) if batch.is_transactional else None
        return refusal or self._refuse_past_epoch(producer_id, batch.producer_epoch)

    def _refuse_unverified(self, batch: RecordBatch, guard: int | None) -> Refusal | None:
        """Check that the first records of a transaction are verified and the guard is current; return the error if not."""
        if not self._policy.verifies_transactions or self._is_open(batch.producer_id, batch.producer_epoch):
            return None
        if self._verifications.holds(batch.producer_id, guard):
            return None
        return Refusal(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")

    def _is_open(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether a producer has an open transaction here; since 4.0 one of another epoch is a different one."""
        if not self._transactions.is_open(producer_id):
            return False
        return not self._policy.transactions_have_epochs or self._entries[producer_id].producer_epoch == producer_epoch

    def _refuse_past_epoch(self, producer_id: int, producer_epoch: int) -> Refusal | None:
        entry = self._entries.get(producer_id)
        if entry is None or producer_epoch >= entry.producer_epoch:
            return None
        return Refusal(ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {producer_id}: epoch {producer_epoch}, seen {entry.producer_epoch}")

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int = 0) -> Refusal | None:
        """Check a coordinator's marker. Fails with INVALID_PRODUCER_EPOCH, or TRANSACTION_COORDINATOR_FENCED by a later coordinator.

        With `transaction_version` 2 the epoch was bumped for the marker: an epoch with records belongs to a later transaction (since 4.2).
        """
        refusal = self._refuse_past_epoch(producer_id, producer_epoch)
        if refusal is not None:
            return refusal
        entry = self._entries.get(producer_id)
        if entry is None:
            return None
        has_begun = producer_epoch == entry.producer_epoch and entry.first_transaction_offset is not None
        if transaction_version >= BUMPS_EPOCHS and has_begun and producer_epoch != LAST_PRODUCER_EPOCH:
            return Refusal(ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {producer_id}: epoch {producer_epoch} has a transaction open here")
        if coordinator_epoch < entry.coordinator_epoch:
            why = f"producer {producer_id}: coordinator epoch {coordinator_epoch}, seen {entry.coordinator_epoch}"
            return Refusal(ErrorCode.TRANSACTION_COORDINATOR_FENCED, why)
        return None

    def apply(self, batch: RecordBatch, base_offset: int, append_timestamp: int | None = None) -> AbortedTransaction | None:
        """Record an appended batch at base_offset, without a check.

        `append_timestamp` (wall milliseconds) replaces the batch's maximum timestamp with message.timestamp.type=LogAppendTime. Returns the
        transaction index entry if the batch is the marker that aborts a transaction with records.
        """
        producer_id = batch.producer_id
        if producer_id < 0:
            return None
        marker = marker_of(batch) if batch.is_control else None
        if batch.is_control and marker is None:
            return None  # compaction has removed the marker: no record of the transaction is left
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = self.entry_class(producer_id, batch.producer_epoch)
        elif entry.producer_epoch != batch.producer_epoch:
            entry.take_epoch(batch.producer_epoch)
        if batch.is_transactional:
            self._verifications.end(producer_id)
        max_timestamp = batch.max_timestamp if append_timestamp is None else append_timestamp
        if marker is not None:
            return self._end_transaction(entry, marker, base_offset, max_timestamp)
        offset_delta = batch.last_offset_delta
        entry.add_batch(batch.last_sequence, base_offset + offset_delta, offset_delta, max_timestamp)
        if batch.is_transactional and entry.first_transaction_offset is None:
            entry.first_transaction_offset = base_offset
            self._transactions.begin(producer_id, base_offset)
        return None

    def replay(self, batch: RecordBatch) -> AbortedTransaction | None:
        """Record a batch from a log, at its offset (origin REPLICATION)."""
        return self.apply(batch, batch.base_offset)

    def load(self, entries: Iterable[ProducerStateEntry], now_ms: int) -> None:
        """Load the entries of a snapshot that are not expired (wall clock); replaces the state."""
        self._entries = {entry.producer_id: entry for entry in entries if not self._has_expired(entry, now_ms)}
        self._transactions = PartitionTransactions(
            {entry.producer_id: entry.first_transaction_offset for entry in self._entries.values() if entry.first_transaction_offset is not None}
        )

    def on_log_start(self, log_start_offset: int) -> None:
        """The log start offset advances; before 2.4 (KAFKA-7190) producers without a batch from there on are removed, with their transactions.

        A producer with a remaining batch keeps its earlier ones, too: Kafka drops them from a copy (ProducerStateEntry.removeBatchesOlderThan).
        """
        if self._policy.keeps_deleted:
            return
        for producer_id in [each.producer_id for each in self._entries.values() if each.last_offset < log_start_offset]:
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
        """Remove producers without a batch for producer.id.expiration.ms (wall clock against the batches' timestamps), and return their ids."""
        expired = [producer_id for producer_id, entry in self._entries.items() if self._has_expired(entry, now_ms)]
        for producer_id in expired:
            del self._entries[producer_id]
        self._verifications.expire(now_ms, self._policy.expiration_ms)
        return expired

    def _has_expired(self, entry: ProducerStateEntry, now_ms: int) -> bool:
        return entry.first_transaction_offset is None and now_ms - entry.last_timestamp >= self._policy.expiration_ms

    def _check_sequence(self, entry: ProducerStateEntry | None, producer_epoch: int, base_sequence: int, producer_id: int) -> Append | Refusal:
        known_epoch = entry.producer_epoch if entry is not None else NO_PRODUCER_EPOCH
        last_sequence = entry.last_sequence if entry is not None else NO_SEQUENCE
        verification = self._verifications.of(producer_id)
        if verification is not None and producer_epoch >= known_epoch:
            expected = 0 if verification.adds and last_sequence == NO_SEQUENCE else verification.lowest_sequence
            if base_sequence > expected:
                why = f"producer {producer_id}: sequence {base_sequence} while {expected} is pending verification"
                return Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why)
        if producer_epoch == known_epoch:
            if is_next_sequence(last_sequence, base_sequence):
                return APPEND
            return self._refuse_order(entry, last_sequence, base_sequence, producer_id)
        if producer_epoch < known_epoch:
            return Refusal(ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {producer_id}: epoch {producer_epoch}, seen {known_epoch}")
        if base_sequence == 0:
            return APPEND
        if known_epoch == NO_PRODUCER_EPOCH:
            return self._check_unknown(base_sequence, producer_id)
        why = f"producer {producer_id}: epoch {producer_epoch} starts with sequence {base_sequence} instead of 0"
        return Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why)

    def _refuse_order(self, entry: ProducerStateEntry | None, last_sequence: int, base_sequence: int, producer_id: int) -> Refusal:
        why = f"producer {producer_id}: sequence {base_sequence} after {last_sequence}"
        forgot_its_batches = entry is not None and last_sequence == NO_SEQUENCE
        if forgot_its_batches and self._policy.unknown_producer is UnknownProducer.UNKNOWN_PRODUCER_ID:
            return Refusal(ErrorCode.UNKNOWN_PRODUCER_ID, why)  # KAFKA-7298, up to 2.4
        return Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why)

    def _check_unknown(self, base_sequence: int, producer_id: int) -> Append | Refusal:
        why = f"producer {producer_id} is unknown and starts with sequence {base_sequence}"
        match self._policy.unknown_producer:
            case UnknownProducer.ACCEPTED:
                return APPEND
            case UnknownProducer.UNKNOWN_PRODUCER_ID:
                return Refusal(ErrorCode.UNKNOWN_PRODUCER_ID, why)
            case UnknownProducer.OUT_OF_ORDER:
                return Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why)

    def _end_transaction(self, entry: ProducerStateEntry, marker: Marker, offset: int, timestamp: int) -> AbortedTransaction | None:
        entry.last_timestamp = timestamp
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.first_transaction_offset = None
        return self._transactions.end(entry.producer_id, offset, is_abort=marker.is_abort)
