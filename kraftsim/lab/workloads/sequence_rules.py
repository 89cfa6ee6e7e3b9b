"""A reference model of how a partition answers batches of idempotent producers, written from Apache
Kafka's documents for scenarios alone.

It shares no code with kraftsim's brokers. One producer writes at a time, and its request completes
before the next one, so that each answer and its offset are known beforehand.
Source: KIP-98, KIP-360, KIP-890, KAFKA-14920; ProducerAppendInfo,
UnifiedLog.analyzeAndValidateProducerState.
"""

from dataclasses import dataclass, field
from typing import Final

from kraftsim.cluster.exact_client import ExactBatch
from protocol.errors import ErrorCode

SEQUENCES: Final = 2**31
"""Sequences wrap to 0 after the last one."""
BATCHES_KEPT: Final = 5
NOWHERE: Final = -1
ADDS_SINCE: Final = 12
"""The version of Produce since which the leader adds the partition to the transaction."""
Answer = tuple[ErrorCode, int]
"""An error, and the offset of the first record."""
OUT_OF_ORDER: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, NOWHERE)
OLD_EPOCH: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, NOWHERE)


@dataclass(frozen=True, slots=True)
class WrittenSequence:
    """A batch in the log."""

    base_sequence: int
    record_count: int
    first_offset: int

    @property
    def next_sequence(self) -> int:
        """The sequence that its producer continues with."""
        return (self.base_sequence + self.record_count) % SEQUENCES


@dataclass(slots=True)
class Known:
    """The state of a producer: the batches of its epoch, the newest last."""

    producer_epoch: int
    batches: list[WrittenSequence] = field(default_factory=list)

    @property
    def next_sequence(self) -> int:
        """The next sequence of its epoch."""
        return self.batches[-1].next_sequence if self.batches else 0


@dataclass(slots=True)
class PartitionRules:
    """One partition: the values in its log, and its producer state. A marker is a value of None."""

    values: list[bytes | None] = field(default_factory=list)
    may_forget: bool = False
    """Brokers were restarted: a producer snapshot has only the last batch of each producer."""
    known: dict[int, Known] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)
    """Producers with records of a transaction that has not ended."""
    lowest: dict[int, int] = field(default_factory=dict)
    """By producer, the lowest sequence of a batch with which its transaction could begin: that
    batch must be the first.
    """

    def answers(self, batch: ExactBatch) -> tuple[Answer, ...]:
        """Return the possible answers to a batch: mostly one.

        A transactional batch belongs to a transaction that the coordinator knows.
        """
        known = self.known.get(batch.producer_id)
        if known is not None and batch.producer_epoch == known.producer_epoch:
            for age, each in enumerate(reversed(known.batches[-BATCHES_KEPT:])):
                if (each.base_sequence, each.record_count) == (
                    batch.base_sequence,
                    len(batch.values),
                ):
                    duplicate = (ErrorCode.NONE, each.first_offset)
                    return (duplicate, OUT_OF_ORDER) if age and self.may_forget else (duplicate,)
        return (self._judged(batch, known),)

    def _judged(self, batch: ExactBatch, known: Known | None) -> Answer:
        if known is not None and batch.producer_epoch < known.producer_epoch:
            return OLD_EPOCH
        if batch.transactional_id is not None and batch.producer_id not in self.open:
            if batch.base_sequence > self.lowest.get(batch.producer_id, batch.base_sequence):
                return OUT_OF_ORDER
            if (
                batch.version >= ADDS_SINCE
                and batch.base_sequence
                and (known is None or not known.batches)
            ):
                return OUT_OF_ORDER
        if known is None:
            return self._end()
        expected = known.next_sequence if batch.producer_epoch == known.producer_epoch else 0
        return self._end() if batch.base_sequence == expected else OUT_OF_ORDER

    def _end(self) -> Answer:
        return ErrorCode.NONE, len(self.values)

    def ask(self, batch: ExactBatch) -> None:
        """Record a batch of a transaction before it is verified with the coordinator."""
        if batch.producer_id not in self.open:
            self.lowest[batch.producer_id] = min(
                batch.base_sequence, self.lowest.get(batch.producer_id, batch.base_sequence)
            )

    def take(self, batch: ExactBatch, answer: Answer) -> None:
        """Record the answer."""
        if answer != self._end():
            return
        known = self.known.get(batch.producer_id)
        if known is None or known.producer_epoch != batch.producer_epoch:
            known = self.known[batch.producer_id] = Known(batch.producer_epoch)
        known.batches.append(
            WrittenSequence(batch.base_sequence, len(batch.values), len(self.values))
        )
        self.values.extend(batch.values)
        if batch.transactional_id is not None:
            self.open.add(batch.producer_id)
            self.lowest.pop(batch.producer_id, None)

    def end(self, producer_id: int, producer_epoch: int) -> None:
        """Record the marker that ends a transaction, whose epoch may be higher than that of the
        batches.
        """
        known = self.known.get(producer_id)
        if known is None or known.producer_epoch != producer_epoch:
            self.known[producer_id] = Known(producer_epoch)
        self.open.discard(producer_id)
        self.lowest.pop(producer_id, None)
        self.values.append(None)
