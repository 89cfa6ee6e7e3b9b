"""The first sequence of a cached batch is computed without regard to the wrap-around of sequence
numbers.

A batch starts before 2^31-1 and ends after 0. Its cached first sequence is negative, so that a
retry is not recognised as a duplicate: the response is OUT_OF_ORDER_SEQUENCE_NUMBER, the producer
treats its records as lost, and sends them again in a new epoch.

Source: KAFKA-7692, fixed by DefaultRecordBatch.decrementSequence.
"""

from kraftsim.lab.bugs.bug import Bug
from kraftsim.producer_state.rules_entries import ProducerStateEntry
from kraftsim.producer_state.rules_manager import ProducerStateManager


class BeginsBelowZero(ProducerStateEntry, gc=False, eq=False):
    """Caches batches that wrap as if they began below 0."""

    def _first(self, last_sequence: int, offset_delta: int) -> int:
        return last_sequence - offset_delta  # right: it wraps


class IgnoresWrapAround(ProducerStateManager):
    """Has such entries."""

    __slots__ = ()
    entry_class = BeginsBelowZero


BUG = Bug(
    name="KAFKA-7692",
    title="the first sequence of a batch across 2^31-1 is negative",
    fixed_in=("2.1.1", "2.2.0"),
    swap=lambda parts: parts.replacing(producer_state_manager=IgnoresWrapAround),
    scenario="producer_state_recovery",
    caught_by=("records-in-final-log-once",),
)
