"""The producer state of one partition, and the check of a message: next, duplicate, or refused.

A message is appended if its sequence number is one above the last one and its generation is the
known one or the next. Leases change nothing here: the state follows from the log alone, so that
followers and recovering servers have the same.
Source: the lease_pid draft.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.core.lease_pid.lease_tables import LeasedProducerEntry, table_of
from kraftsim.core.lease_pid.readings import (
    AnswerToRepeat,
    AnswerToUnknown,
    CountsFrom,
    NextGeneration,
    Readings,
)
from kraftsim.producer_state.rules_entries import (
    decrement_sequence,
    increment_sequence,
    is_next_sequence,
)
from protocol.batches import SEQUENCES
from protocol.errors import ErrorCode
from protocol.lease_pid.leasing import NOT_IDEMPOTENT
from protocol.lease_pid.writing import LeasedMessage

HALF_OF_SEQUENCES: Final = SEQUENCES // 2
"""Sequence numbers up to this far behind the last one were used, those ahead are new; with a larger
range they would be ambiguous.
"""


@dataclass(frozen=True, slots=True)
class Next:
    """The message is the next one: append it."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """It is already in the log; write nothing. `error` is returned to its producer."""

    error: ErrorCode


NEXT: Final = Next()
MessageCheck = Next | Repeated | Refusal
REPEAT_ERRORS: Final = {
    AnswerToRepeat.DUPLICATE: ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    AnswerToRepeat.SUCCESS: ErrorCode.NONE,
    AnswerToRepeat.OUT_OF_ORDER: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
}


def generation_after(generation: int) -> int:
    """Return the next generation; the first one is random, so the largest wraps."""
    return increment_sequence(generation, 1)


class LeasedPartition:
    """`check` a message, `apply` it once it is in the log, `expire` periodically."""

    def __init__(self, readings: Readings) -> None:
        self.readings = readings
        self._table = table_of(readings.lookup)

    def __len__(self) -> int:
        return len(self._table)

    def entries(self) -> list[LeasedProducerEntry]:
        """Return all entries, by id."""
        return sorted(self._table.entries(), key=lambda entry: entry.producer_id)

    def known(self, producer_id: int) -> LeasedProducerEntry | None:
        """Return the entry of a producer."""
        return self._table.get(producer_id)

    def check(self, message: LeasedMessage) -> MessageCheck:
        """Check a message without changing the state.

        Errors are 45, 46, 47 or 59, depending on the readings.
        """
        if message.producer_id == NOT_IDEMPOTENT:
            return NEXT
        entry = self._table.get(message.producer_id)
        if entry is None:
            return self._check_unknown(message)
        if message.generation == entry.generation:
            return self._check_sequence(entry, message)
        if message.generation == generation_after(entry.generation):
            return self._check_next_generation(entry, message)
        why = (
            f"producer {message.producer_id}: generation {message.generation}, the current one "
            f"is {entry.generation}"
        )
        return Refusal(ErrorCode.INVALID_PRODUCER_EPOCH, why)

    def apply(self, message: LeasedMessage, now_ms: int) -> None:
        """Record a message that is in the log, without checking it."""
        if message.producer_id == NOT_IDEMPOTENT:
            return
        entry = self._table.get(message.producer_id)
        if entry is None:
            self._table.add(
                LeasedProducerEntry(
                    message.producer_id, message.generation, message.sequence_number, now_ms, now_ms
                )
            )
        else:
            entry.generation, entry.sequence_high_watermark = (
                message.generation,
                message.sequence_number,
            )
            entry.last_seen_ms = max(now_ms, entry.last_seen_ms)

    def restore(self, entries: Iterable[LeasedProducerEntry]) -> None:
        """Replace the state by that of a snapshot."""
        self._table = table_of(self.readings.lookup)
        for entry in entries:
            self._table.add(entry)

    def forget(self, producer_ids: Collection[int]) -> list[int]:
        """Remove some producers, in use or not; return those that were known."""
        gone = [entry.producer_id for entry in self.entries() if entry.producer_id in producer_ids]
        if gone:
            self.restore(
                [entry for entry in self.entries() if entry.producer_id not in producer_ids]
            )
        return gone

    def expire(self, now_ms: int) -> list[int]:
        """Remove producers that were not seen for the expiry time, by this server's wall clock;
        return their ids.
        """
        return self._table.expire(lambda entry: self._is_due(entry, now_ms))

    def _is_due(self, entry: LeasedProducerEntry, now_ms: int) -> bool:
        seen_ms = (
            entry.first_seen_ms
            if self.readings.counts_from is CountsFrom.FIRST_SEEN
            else entry.last_seen_ms
        )
        return now_ms - seen_ms >= self.readings.expire_ms

    def _check_unknown(self, message: LeasedMessage) -> MessageCheck:
        if (
            message.sequence_number == self.readings.first_sequence
            or self.readings.unknown is AnswerToUnknown.TAKEN
        ):
            return NEXT
        why = (
            f"producer {message.producer_id} is unknown and starts with sequence "
            f"{message.sequence_number}"
        )
        is_59 = self.readings.unknown is AnswerToUnknown.UNKNOWN
        return Refusal(
            ErrorCode.UNKNOWN_PRODUCER_ID if is_59 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why
        )

    def _check_sequence(self, entry: LeasedProducerEntry, message: LeasedMessage) -> MessageCheck:
        mark = entry.sequence_high_watermark
        if is_next_sequence(mark, message.sequence_number):
            return NEXT
        if (mark - message.sequence_number) % SEQUENCES < HALF_OF_SEQUENCES:
            return Repeated(REPEAT_ERRORS[self.readings.repeat])
        return _out_of_order(message, mark)

    def _check_next_generation(
        self, entry: LeasedProducerEntry, message: LeasedMessage
    ) -> MessageCheck:
        """Check the first message of the next generation.

        A sequence behind the last one is no duplicate: another producer has written since the
        lease.
        """
        begins_at_zero = self.readings.next_generation is NextGeneration.BEGINS_AT_ZERO
        before_first = decrement_sequence(self.readings.first_sequence, 1)
        mark = before_first if begins_at_zero else entry.sequence_high_watermark
        return (
            NEXT
            if is_next_sequence(mark, message.sequence_number)
            else _out_of_order(message, mark)
        )


def _out_of_order(message: LeasedMessage, mark: int) -> Refusal:
    why = f"producer {message.producer_id}: sequence {message.sequence_number} after {mark}"
    return Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why)
