"""The unacknowledged records of one partition, in order, and the sequences they carry.

Three rules make exactly-once of at-least-once. A batch keeps its sequence for as long as its fate is unknown. A batch that was sent before goes out
again only when everything before it is settled. A batch gets a new identity only once it is certain that it is not in the log.
Source: KIP-98, KIP-360, org.apache.kafka.clients.producer.internals.{RecordAccumulator, TransactionManager, TxnPartitionEntry}.
"""

from collections import deque
from collections.abc import Iterator
from itertools import takewhile

from kraftsim.core.clients.producer_steps import BatchState, Identity, OutgoingBatch, OutgoingRecord, TopicPartition
from kraftsim.core.producer_state.sequence import increment_sequence, sequences_between

RECORD_OVERHEAD_BYTES = 21
"""Kafka's upper bound for the lengths and deltas around a record's key and value."""
BATCH_HEADER_BYTES = 61
REMEMBERED_BATCHES = 5
"""How many batches a broker can tell duplicates from: one of unknown fate, when it is sent again, must be among the last that many."""


class PartitionQueue:
    """What one partition still has to get. `batches` are closed and in order of their sequences; `gathering` is still open."""

    def __init__(self, where: TopicPartition, first_sequence: int = 0) -> None:
        self.where = where
        self.batches: deque[OutgoingBatch] = deque()
        self.gathering: OutgoingBatch | None = None
        self.identity: Identity | None = None
        self.next_sequence = 0
        self._first_sequence = first_sequence
        self._sent_count = 0
        self.has_lost_sequence = False
        """A sequence was given out that the log does not have and never will: the identity cannot go on here."""

    def add(self, record: OutgoingRecord, batch_size_bytes: int, now_ms: int) -> bool:
        """Take a record into the open batch; a batch that would outgrow batch_size_bytes is closed first. Returns whether one was."""
        size_bytes = len(record.key) + len(record.value) + RECORD_OVERHEAD_BYTES
        has_closed = self.gathering is not None and self.gathering.size_bytes + size_bytes > batch_size_bytes
        if has_closed:
            self.close_open_batch()
        if self.gathering is None:
            self.gathering = OutgoingBatch(where=self.where, records=[], size_bytes=BATCH_HEADER_BYTES, created_ms=now_ms)
        self.gathering.records.append(record)
        self.gathering.size_bytes += size_bytes
        return has_closed

    def close_open_batch(self) -> None:
        """Nothing more goes into the batch being gathered."""
        if self.gathering is not None:
            self.batches.append(self.gathering)
            self.gathering = None

    def sendable(self, identity: Identity, now_ms: int) -> OutgoingBatch | None:
        """Return the batch that may be sent now under the producer's identity, or None.

        A batch sent before may go only if it is the first whose fate is open. A new one only if everything before it is on its way, so that
        sequences reach the broker in order, and no batch of an older identity is open.
        """
        for batch in self.batches:
            if batch.state is BatchState.READY:
                may_go = self.is_first_open(batch) if batch.attempts else self._may_begin(identity, batch)
                return batch if may_go and batch.not_before_ms <= now_ms else None
        return None

    def _may_begin(self, identity: Identity, batch: OutgoingBatch) -> bool:
        is_continued = self.identity == identity or not any(True for _ in self.sent_batches())
        return is_continued and not self.has_lost_sequence and self.has_room_for(batch)

    def has_room_for(self, batch: OutgoingBatch) -> bool:
        """Tell whether a batch may join those whose fate is open.

        What was acknowledged behind the first of them counts as well: while that one waits for a leader that is none any more, the next leader takes
        others, and must still know the first one when it comes to it. Apache Kafka's producer counts requests of a connection only.
        """
        first = next(self.sent_batches(), None)
        return first is None or self._sent_count - first.number < REMEMBERED_BATCHES

    def sent_batches(self) -> Iterator[OutgoingBatch]:
        """Yield the batches that were sent at least once: they stand before all others."""
        return takewhile(lambda batch: batch.attempts > 0, self.batches)

    def send(self, batch: OutgoingBatch, identity: Identity) -> None:
        """Mark a batch as on its way; a new one gets the next sequence. The partition adopts a newer identity only when nothing is open."""
        assert batch.state is BatchState.READY, "only a waiting batch is sent"
        if batch.identity is None:
            if self.identity != identity:
                assert not any(self.sent_batches()), "a new identity begins with no batch of the old one open"
                self.identity, self.next_sequence = identity, self._first_sequence
                self._first_sequence = 0
            batch.identity = identity
            batch.base_sequence = self.next_sequence
            self.next_sequence = increment_sequence(self.next_sequence, len(batch.records))
        if not batch.attempts:
            batch.number = self._sent_count
            self._sent_count += 1
        batch.state = BatchState.IN_FLIGHT
        batch.attempts += 1

    def sequences_under_way(self) -> int:
        """Return how many sequences were given out from the first whose fate is open on."""
        first = next(self.sent_batches(), None)
        return 0 if first is None else sequences_between(first.base_sequence, self.next_sequence)

    def is_first_open(self, batch: OutgoingBatch) -> bool:
        """Tell whether everything before a batch is settled."""
        for each in self.batches:
            if each is batch:
                return True
            if each.state is not BatchState.REFUSED:
                return False
        raise AssertionError("the batch is of this partition")

    def retry(self, batch: OutgoingBatch, not_before_ms: int) -> None:
        """Its fate is unknown, or the broker asks to try again: the same bytes go out once more."""
        batch.state = BatchState.READY
        batch.not_before_ms = not_before_ms

    def refuse(self, batch: OutgoingBatch) -> None:
        """The broker's log does not have it and cannot take it under this sequence."""
        batch.state = BatchState.REFUSED
        self.has_lost_sequence = True

    def remove(self, batch: OutgoingBatch, *, sequence_is_used: bool) -> None:
        """The batch is settled. If its sequence may be missing in the log, the identity cannot go on in this partition."""
        self.batches.remove(batch)
        if batch.identity is not None and not sequence_is_used:
            self.has_lost_sequence = True

    def needs_new_identity(self) -> bool:
        """Tell whether the partition waits for a new identity: a sequence is lost and no fate is open any more."""
        return self.has_lost_sequence and not any(batch.state is not BatchState.REFUSED for batch in self.sent_batches())

    def begin_again(self) -> None:
        """Give the refused batches no sequence, so that they get new ones, from 0, under the next identity."""
        assert self.needs_new_identity(), "no batch may be renumbered while it may be in the log"
        for batch in self.batches:
            batch.state = BatchState.READY
            batch.identity = None
            batch.base_sequence = -1
            batch.attempts = 0
            batch.not_before_ms = 0
        self.identity = None
        self.next_sequence = 0
        self.has_lost_sequence = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits here, is on its way, or is being gathered."""
        return not self.batches and self.gathering is None

    def overdue(self, created_before_ms: int) -> list[OutgoingBatch]:
        """Return the batches that are older than they may be and not on their way."""
        if self.gathering is not None and self.gathering.created_ms < created_before_ms:
            self.close_open_batch()
        old = takewhile(lambda batch: batch.created_ms < created_before_ms, self.batches)
        return [batch for batch in old if batch.state is not BatchState.IN_FLIGHT]
