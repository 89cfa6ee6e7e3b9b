"""The variant of KIP-758: of each producer only the latest batch is kept, and how many requests may be in flight is no business of the broker.

A batch that ends at the latest sequence, or up to max.in.flight.sequence.number.per.connection sequences behind it, is in the log already: what was
appended was appended in order. The range says so by arithmetic alone, without having seen the batch. So a producer that went astray, and sends
sequences that it never used from behind the end of the numbers, is told that they are in the log: Apache Kafka, with its five batches, refuses them.

Source: KIP-758 (never adopted).
"""

from dataclasses import replace
from typing import ClassVar

from kraftsim.core.decision import Refusal
from kraftsim.core.producer_state.entry import ProducerStateEntry
from kraftsim.core.producer_state.manager import ProducerStateManager
from kraftsim.core.producer_state.sequence import NO_SEQUENCE
from kraftsim.core.producer_state.verdict import Duplicate, Verdict
from protocol.batches import SEQUENCES, RecordBatch
from protocol.errors import ErrorCode


class LatestBatchEntry(ProducerStateEntry, gc=False, eq=False):
    """Remembers one batch."""

    retained_max: ClassVar[int] = 1


class LatestBatchStateManager(ProducerStateManager):
    """Judges a batch by the latest one: its copy has an offset, what lies behind it is DUPLICATE_SEQUENCE_NUMBER, the rest is as it always was."""

    __slots__ = ()
    entry_class = LatestBatchEntry

    def check(self, batch: RecordBatch, guard: int | None = None) -> Verdict:
        """Judge a batch of a client; comes back with DUPLICATE_SEQUENCE_NUMBER, too: it is in the log, at an offset nobody knows."""
        verdict = super().check(batch, guard)
        if not isinstance(verdict, Refusal) or verdict.error is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return verdict
        entry = self._entries.get(batch.producer_id)
        if entry is None or entry.producer_epoch != batch.producer_epoch or entry.last_sequence == NO_SEQUENCE:
            return verdict
        behind = (entry.last_sequence - batch.last_sequence) % SEQUENCES
        if behind >= self._policy.sequences_behind:
            return verdict
        why = f"producer {batch.producer_id}: sequence {batch.last_sequence} is {behind} behind {entry.last_sequence}"
        return Refusal(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, why)


class LatestBatchRepeated(LatestBatchStateManager):
    """The other reading of the text, which leaves open what an exact repetition is told: DUPLICATE_SEQUENCE_NUMBER as well, with its offset."""

    __slots__ = ()

    def check(self, batch: RecordBatch, guard: int | None = None) -> Verdict:
        """Judge a batch of a client."""
        verdict = super().check(batch, guard)
        return replace(verdict, error=ErrorCode.DUPLICATE_SEQUENCE_NUMBER) if isinstance(verdict, Duplicate) else verdict
