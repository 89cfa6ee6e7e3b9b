"""What one partition knows of its producers, and what it says to a message: the next one, one that is there, or none that it may take.

A message is appended if its sequence number is one above the mark and its generation the known one or the next. Leases change nothing here: what is
known follows from the log alone, so that followers and whoever recovers know the same.   Source: the lease_pid draft.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.core.lease_pid.lease_tables import LeasedProducerEntry, table_of
from kraftsim.core.lease_pid.readings import AnswerToRepeat, AnswerToUnknown, CountsFrom, NextGeneration, Readings
from kraftsim.core.producer_state.sequence import decrement_sequence, increment_sequence, is_next_sequence
from protocol.batches import SEQUENCES
from protocol.errors import ErrorCode
from protocol.lease_pid.leasing import NOT_IDEMPOTENT
from protocol.lease_pid.writing import LeasedMessage

HALF_OF_SEQUENCES: Final = SEQUENCES // 2
"""Numbers up to so far behind the mark were used, those ahead of it will be; with any more nobody could tell."""


@dataclass(frozen=True, slots=True)
class Next:
    """The message is the next one: append it."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """It is in the log already; write nothing. `error` is what its producer hears."""

    error: ErrorCode


NEXT: Final = Next()
Judgement = Next | Repeated | Refusal
REPEAT_ERRORS: Final = {
    AnswerToRepeat.DUPLICATE: ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    AnswerToRepeat.SUCCESS: ErrorCode.NONE,
    AnswerToRepeat.OUT_OF_ORDER: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
}


def generation_after(generation: int) -> int:
    """Return the next generation; the first is drawn by lot, so the largest has one behind it, too."""
    return increment_sequence(generation, 1)


class LeasedPartition:
    """`judge` a message, `apply` it once it is in the log, `expire` now and then."""

    def __init__(self, readings: Readings) -> None:
        self.readings = readings
        self._table = table_of(readings.lookup)

    def __len__(self) -> int:
        return len(self._table)

    def entries(self) -> list[LeasedProducerEntry]:
        """Return what is known, by id."""
        return sorted(self._table.entries(), key=lambda entry: entry.producer_id)

    def known(self, producer_id: int) -> LeasedProducerEntry | None:
        """Return what is known of a producer."""
        return self._table.get(producer_id)

    def judge(self, message: LeasedMessage) -> Judgement:
        """Say what a message is; nothing changes. Comes back with 45, 46, 47 or 59, as the readings want it."""
        if message.producer_id == NOT_IDEMPOTENT:
            return NEXT
        entry = self._table.get(message.producer_id)
        if entry is None:
            return self._judge_unknown(message)
        if message.generation == entry.generation:
            return self._judge_sequence(entry, message)
        if message.generation == generation_after(entry.generation):
            return self._judge_successor(entry, message)
        why = f"producer {message.producer_id}: generation {message.generation}, and {entry.generation} is known"
        return Refusal(ErrorCode.INVALID_PRODUCER_EPOCH, why)

    def apply(self, message: LeasedMessage, now_ms: int) -> None:
        """Remember a message that is in the log, whoever judged it."""
        if message.producer_id == NOT_IDEMPOTENT:
            return
        entry = self._table.get(message.producer_id)
        if entry is None:
            self._table.add(LeasedProducerEntry(message.producer_id, message.generation, message.sequence_number, now_ms, now_ms))
        else:
            entry.generation, entry.sequence_high_watermark = message.generation, message.sequence_number
            entry.last_seen_ms = max(now_ms, entry.last_seen_ms)

    def restore(self, entries: Iterable[LeasedProducerEntry]) -> None:
        """Forget all, and know what a snapshot says."""
        self._table = table_of(self.readings.lookup)
        for entry in entries:
            self._table.add(entry)

    def forget(self, producer_ids: Collection[int]) -> list[int]:
        """Forget some producers, in use or not; return those that were known."""
        gone = [entry.producer_id for entry in self.entries() if entry.producer_id in producer_ids]
        if gone:
            self.restore([entry for entry in self.entries() if entry.producer_id not in producer_ids])
        return gone

    def expire(self, now_ms: int) -> list[int]:
        """Forget whoever has not been seen for the time of disuse, by this server's wall clock; return their ids."""
        return self._table.expire(lambda entry: self._is_due(entry, now_ms))

    def _is_due(self, entry: LeasedProducerEntry, now_ms: int) -> bool:
        seen_ms = entry.first_seen_ms if self.readings.counts_from is CountsFrom.FIRST_SEEN else entry.last_seen_ms
        return now_ms - seen_ms >= self.readings.expire_ms

    def _judge_unknown(self, message: LeasedMessage) -> Judgement:
        if message.sequence_number == self.readings.first_sequence or self.readings.unknown is AnswerToUnknown.TAKEN:
            return NEXT
        why = f"producer {message.producer_id} is not known and comes with sequence {message.sequence_number}"
        is_59 = self.readings.unknown is AnswerToUnknown.UNKNOWN
        return Refusal(ErrorCode.UNKNOWN_PRODUCER_ID if is_59 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why)

    def _judge_sequence(self, entry: LeasedProducerEntry, message: LeasedMessage) -> Judgement:
        mark = entry.sequence_high_watermark
        if is_next_sequence(mark, message.sequence_number):
            return NEXT
        if (mark - message.sequence_number) % SEQUENCES < HALF_OF_SEQUENCES:
            return Repeated(REPEAT_ERRORS[self.readings.repeat])
        return _out_of_order(message, mark)

    def _judge_successor(self, entry: LeasedProducerEntry, message: LeasedMessage) -> Judgement:
        """The first message of the next generation. One behind the mark is no repeat: somebody else has written since the lease was given."""
        begins_at_zero = self.readings.next_generation is NextGeneration.BEGINS_AT_ZERO
        before_first = decrement_sequence(self.readings.first_sequence, 1)
        mark = before_first if begins_at_zero else entry.sequence_high_watermark
        return NEXT if is_next_sequence(mark, message.sequence_number) else _out_of_order(message, mark)


def _out_of_order(message: LeasedMessage, mark: int) -> Refusal:
    why = f"producer {message.producer_id}: sequence {message.sequence_number} after {mark}"
    return Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why)
