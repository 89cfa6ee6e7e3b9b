"""The first sequence of a remembered batch is computed without care for the end of the numbers.

A batch begins before 2^31-1 and ends behind 0. What is remembered of it begins at a negative sequence, so that its repetition is not recognised: it
is out of order, the producer takes its records for lost, and sends them again in a new epoch.

Source: KAFKA-7692, fixed by DefaultRecordBatch.decrementSequence.
"""

from kraftsim.bugs.bug import Bug
from kraftsim.core.producer_state.entry import ProducerStateEntry
from kraftsim.core.producer_state.manager import ProducerStateManager


class BeginsBelowZero(ProducerStateEntry, gc=False, eq=False):
    """Remembers batches that wrap as if they began below 0."""

    def _first(self, last_sequence: int, offset_delta: int) -> int:
        return last_sequence - offset_delta  # right: it wraps


class ForgetsToWrap(ProducerStateManager):
    """Keeps such entries."""

    __slots__ = ()
    entry_class = BeginsBelowZero


BUG = Bug(
    name="KAFKA-7692",
    title="the first sequence of a batch across 2^31-1 is negative",
    fixed_in=("2.1.1", "2.2.0"),
    swap=lambda parts: parts.replacing(producer_state_manager=ForgetsToWrap),
    story="producers_are_remembered",
    caught_by=("records-in-final-log-once",),
)
