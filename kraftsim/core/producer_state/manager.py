"""The producers of one partition: says what a batch is (new, repeated, refused), and remembers what went into the log.

Looking never changes anything: state moves only when the bytes are written (`apply`), else a failed append would make the retry look like a
repetition and lose it (KAFKA-6683).   Source: ProducerStateManager, ProducerAppendInfo.
"""

from collections.abc import Mapping
from types import MappingProxyType

from kraftsim.core.decision import Refusal
from kraftsim.core.producer_state.entry import NO_PRODUCER_EPOCH, ProducerStateEntry
from kraftsim.core.producer_state.policy import ProducerStatePolicy, UnknownProducer
from kraftsim.core.producer_state.sequence import NO_SEQUENCE, is_next_sequence
from kraftsim.core.producer_state.verdict import APPEND, Append, Duplicate, Verdict
from protocol.batches import RecordBatch
from protocol.errors import ErrorCode


class ProducerStateManager:
    """`check` a batch of a client, `apply` it once it is in the log; `replay` what is read back from a log without judging it."""

    __slots__ = ("_entries", "_open_transactions", "_policy")

    def __init__(self, policy: ProducerStatePolicy) -> None:
        self._policy = policy
        self._entries: dict[int, ProducerStateEntry] = {}
        self._open_transactions: dict[int, int] = {}
        """producer id -> first offset of its open transaction; in the order of the offsets, because they only grow."""

    @property
    def entries(self) -> Mapping[int, ProducerStateEntry]:
        """What is known, by producer id; to be read only."""
        return MappingProxyType(self._entries)

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest open transaction begins; None if none is open."""
        return next(iter(self._open_transactions.values()), None)

    def check(self, batch: RecordBatch) -> Verdict:
        """Judge a batch of a client.

        Comes back with INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_TXN_STATE; before 2.5 also UNKNOWN_PRODUCER_ID.
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
        if batch.is_transactional and self._policy.verifies_transactions and producer_id not in self._open_transactions:
            return Refusal(ErrorCode.INVALID_TXN_STATE, "Partition was not added to the transaction")
        verdict = self._check_sequence(entry, batch.producer_epoch, base_sequence, producer_id)
        if verdict is APPEND and producer_id in self._open_transactions and not batch.is_transactional:
            return Refusal(ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} has a transaction open here")
        return verdict

    def apply(self, batch: RecordBatch, base_offset: int, append_timestamp: int | None = None) -> None:
        """Remember a batch that is in the log at base_offset, whoever wrote it: nothing is judged.

        `append_timestamp` (wall milliseconds) stands for the batch's own greatest timestamp where the topic keeps the time of the append.
        """
        producer_id = batch.producer_id
        if producer_id < 0:
            return
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerStateEntry(producer_id, batch.producer_epoch)
        elif entry.producer_epoch != batch.producer_epoch:
            entry.take_epoch(batch.producer_epoch)
        max_timestamp = batch.max_timestamp if append_timestamp is None else append_timestamp
        if batch.is_control:
            self._end_transaction(entry, max_timestamp)
            return
        offset_delta = batch.last_offset_delta
        entry.add_batch(batch.last_sequence, base_offset + offset_delta, offset_delta, max_timestamp)
        if batch.is_transactional and entry.first_transaction_offset is None:
            entry.first_transaction_offset = base_offset
            self._open_transactions[producer_id] = base_offset

    def replay(self, batch: RecordBatch) -> None:
        """Remember a batch read back from a log, at the offset it carries (origin REPLICATION)."""
        self.apply(batch, batch.base_offset)

    def expire(self, now_ms: int) -> list[int]:
        """Forget producers without a batch for producer.id.expiration.ms (wall clock against the batches' timestamps), and return their ids."""
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.first_transaction_offset is None and now_ms - entry.last_timestamp >= self._policy.expiration_ms
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        return expired

    def _check_sequence(self, entry: ProducerStateEntry | None, producer_epoch: int, base_sequence: int, producer_id: int) -> Append | Refusal:
        known_epoch = entry.producer_epoch if entry is not None else NO_PRODUCER_EPOCH
        last_sequence = entry.last_sequence if entry is not None else NO_SEQUENCE
        if producer_epoch == known_epoch:
            if is_next_sequence(last_sequence, base_sequence):
                return APPEND
            return self._refuse_order(entry, last_sequence, base_sequence, producer_id)
        if producer_epoch < known_epoch:
            return Refusal(ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {producer_id}: epoch {producer_epoch}, seen {known_epoch}")
        if base_sequence == 0:
            return APPEND
        if known_epoch == NO_PRODUCER_EPOCH:
            return self._judge_unknown(base_sequence, producer_id)
        why = f"producer {producer_id}: epoch {producer_epoch} begins with sequence {base_sequence} instead of 0"
        return Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why)

    def _refuse_order(self, entry: ProducerStateEntry | None, last_sequence: int, base_sequence: int, producer_id: int) -> Refusal:
        why = f"producer {producer_id}: sequence {base_sequence} after {last_sequence}"
        forgot_its_batches = entry is not None and last_sequence == NO_SEQUENCE
        if forgot_its_batches and self._policy.unknown_producer is UnknownProducer.UNKNOWN_PRODUCER_ID:
            return Refusal(ErrorCode.UNKNOWN_PRODUCER_ID, why)  # KAFKA-7298, up to 2.4
        return Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why)

    def _judge_unknown(self, base_sequence: int, producer_id: int) -> Append | Refusal:
        why = f"producer {producer_id} is not known and begins with sequence {base_sequence}"
        match self._policy.unknown_producer:
            case UnknownProducer.ACCEPTED:
                return APPEND
            case UnknownProducer.UNKNOWN_PRODUCER_ID:
                return Refusal(ErrorCode.UNKNOWN_PRODUCER_ID, why)
            case UnknownProducer.OUT_OF_ORDER:
                return Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why)

    def _end_transaction(self, entry: ProducerStateEntry, timestamp: int) -> None:
        entry.last_timestamp = timestamp
        entry.first_transaction_offset = None
        self._open_transactions.pop(entry.producer_id, None)
