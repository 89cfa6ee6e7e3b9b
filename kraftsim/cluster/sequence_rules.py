"""What a partition says to a batch of an idempotent producer, as Apache Kafka's documents tell it: the yardstick of stories, written for them alone.

It knows nothing of how our brokers do it. One producer speaks at a time, and is heard out, so that each answer is known beforehand, its offset too.
Source: KIP-98, KIP-360, KIP-890, KAFKA-14920; ProducerAppendInfo, UnifiedLog.analyzeAndValidateProducerState.
"""

from dataclasses import dataclass, field
from typing import Final

from kraftsim.cluster.exact_client import ExactBatch
from protocol.errors import ErrorCode

SEQUENCES: Final = 2**31
"""Behind the last one comes 0."""
REMEMBERED: Final = 5
NOWHERE: Final = -1
ADDS_SINCE: Final = 12
"""The version of Produce since which its leader adds a partition to the transaction."""
Answer = tuple[ErrorCode, int]
"""An error, and the offset of the first record."""
OUT_OF_ORDER: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, NOWHERE)
OLD_EPOCH: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, NOWHERE)


@dataclass(frozen=True, slots=True)
class Written:
    """A batch in the log."""

    base_sequence: int
    record_count: int
    first_offset: int

    @property
    def next_sequence(self) -> int:
        """What its producer goes on with."""
        return (self.base_sequence + self.record_count) % SEQUENCES


@dataclass(slots=True)
class Known:
    """What is known of a producer: the batches of its epoch, the newest last."""

    producer_epoch: int
    batches: list[Written] = field(default_factory=list)

    @property
    def next_sequence(self) -> int:
        """The one sequence that comes next in its epoch."""
        return self.batches[-1].next_sequence if self.batches else 0


@dataclass(slots=True)
class PartitionRules:
    """One partition: what is in its log, and what it knows of producers. A marker is a value of None."""

    values: list[bytes | None] = field(default_factory=list)
    may_forget: bool = False
    """Brokers were restarted: of what is in a snapshot, only the last batch of each producer is known."""
    known: dict[int, Known] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)
    """Producers with records of a transaction that has not ended."""
    lowest: dict[int, int] = field(default_factory=dict)
    """By producer, the lowest sequence that its transaction was to begin with: it goes first."""

    def answers(self, said: ExactBatch) -> tuple[Answer, ...]:
        """Return what may be answered to a batch: mostly one thing. A batch of a transaction is of one that the coordinator knows."""
        known = self.known.get(said.producer_id)
        if known is not None and said.producer_epoch == known.producer_epoch:
            for age, each in enumerate(reversed(known.batches[-REMEMBERED:])):
                if (each.base_sequence, each.record_count) == (said.base_sequence, len(said.values)):
                    again = (ErrorCode.NONE, each.first_offset)
                    return (again, OUT_OF_ORDER) if age and self.may_forget else (again,)
        return (self._judged(said, known),)

    def _judged(self, said: ExactBatch, known: Known | None) -> Answer:
        if known is not None and said.producer_epoch < known.producer_epoch:
            return OLD_EPOCH
        if said.transactional_id is not None and said.producer_id not in self.open:
            if said.base_sequence > self.lowest.get(said.producer_id, said.base_sequence):
                return OUT_OF_ORDER
            if said.version >= ADDS_SINCE and said.base_sequence and (known is None or not known.batches):
                return OUT_OF_ORDER
        if known is None:
            return self._end()
        expected = known.next_sequence if said.producer_epoch == known.producer_epoch else 0
        return self._end() if said.base_sequence == expected else OUT_OF_ORDER

    def _end(self) -> Answer:
        return ErrorCode.NONE, len(self.values)

    def ask(self, said: ExactBatch) -> None:
        """Take note of a batch of a transaction before its coordinator is asked about it."""
        if said.producer_id not in self.open:
            self.lowest[said.producer_id] = min(said.base_sequence, self.lowest.get(said.producer_id, said.base_sequence))

    def take(self, said: ExactBatch, told: Answer) -> None:
        """Take note of the answer."""
        if told != self._end():
            return
        known = self.known.get(said.producer_id)
        if known is None or known.producer_epoch != said.producer_epoch:
            known = self.known[said.producer_id] = Known(said.producer_epoch)
        known.batches.append(Written(said.base_sequence, len(said.values), len(self.values)))
        self.values.extend(said.values)
        if said.transactional_id is not None:
            self.open.add(said.producer_id)
            self.lowest.pop(said.producer_id, None)

    def end(self, producer_id: int, producer_epoch: int) -> None:
        """Take note of the marker that ends a transaction, in which the epoch may be a new one."""
        known = self.known.get(producer_id)
        if known is None or known.producer_epoch != producer_epoch:
            self.known[producer_id] = Known(producer_epoch)
        self.open.discard(producer_id)
        self.lowest.pop(producer_id, None)
        self.values.append(None)
