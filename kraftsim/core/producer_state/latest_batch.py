"""The variant of KIP-758: only the latest batch of each producer is retained, and the number of in-flight requests is not limited by the broker.

A batch that ends at the latest sequence, or up to max.in.flight.sequence.number.per.connection sequences behind it, is a
duplicate, as batches are appended in order. This follows from the range alone, without a retained batch. So a faulty
producer that sends sequences which it never used, from before the wrap-around, gets DUPLICATE_SEQUENCE_NUMBER: Apache
Kafka, with its five batches, refuses them.

Source: KIP-758 (never adopted).
"""

from dataclasses import replace
from typing import ClassVar

from kraftsim.core.decision import Refusal
from kraftsim.core.producer_state.check_result import CheckResult, Duplicate
from kraftsim.core.producer_state.entry import ProducerStateEntry
from kraftsim.core.producer_state.manager import ProducerStateManager
from kraftsim.core.producer_state.sequence import NO_SEQUENCE
from protocol.batches import SEQUENCES, RecordBatch
from protocol.errors import ErrorCode


class LatestBatchEntry(ProducerStateEntry, gc=False, eq=False):
    """Retains one batch."""

    retained_max: ClassVar[int] = 1


class LatestBatchStateManager(ProducerStateManager):
    """Checks by the latest batch: its duplicate has an offset, sequences behind it are DUPLICATE_SEQUENCE_NUMBER, the rest is unchanged."""

    __slots__ = ()
    entry_class = LatestBatchEntry

    def check(self, batch: RecordBatch, guard: int | None = None) -> CheckResult:
        """Check a client's batch; also returns DUPLICATE_SEQUENCE_NUMBER: it is in the log, at an unknown offset."""
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
    """The other reading of the text, which does not define the response to an exact duplicate: DUPLICATE_SEQUENCE_NUMBER with its offset."""

    __slots__ = ()

    def check(self, batch: RecordBatch, guard: int | None = None) -> CheckResult:
        """Check a client's batch."""
        verdict = super().check(batch, guard)
        return replace(verdict, error=ErrorCode.DUPLICATE_SEQUENCE_NUMBER) if isinstance(verdict, Duplicate) else verdict
