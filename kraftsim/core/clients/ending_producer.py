"""Producers that never go across the end of the sequence numbers: at 2^31-1 they take the next epoch and count from 0 again.

KIP-758 weighed this against its window and left it: without numbers that come round, what lies behind the latest batch needs no bound. An idempotent
producer settles what is open and goes on under the next epoch; a transaction that would go across the end is aborted.
Source: KIP-758 (Rejected Alternatives); producers of Apache Kafka go round instead (DefaultRecordBatch.incrementSequence).
"""

from kraftsim.core.clients.gated_producer import GatedProducer
from kraftsim.core.clients.idempotent_producer import IdempotentProducer
from kraftsim.core.clients.partition_queue import PartitionQueue
from kraftsim.core.clients.producer_steps import Identity, OutgoingBatch, TopicPartition
from kraftsim.core.clients.transactional_producer import TransactionalProducer
from kraftsim.core.producer_state.sequence import LAST_SEQUENCE


class EndingQueue(PartitionQueue):
    """Gives no batch a number behind `sequence_max`: it waits for the next epoch instead."""

    sequence_max = LAST_SEQUENCE

    def __init__(self, where: TopicPartition, first_sequence: int = 0) -> None:
        super().__init__(where, first_sequence)
        self._numbers_left = self.sequence_max + 1 - first_sequence

    def sendable(self, identity: Identity, now_ms: int) -> OutgoingBatch | None:
        """Return the batch that may be sent now; one that would go across the end is refused before it is sent."""
        batch = super().sendable(identity, now_ms)
        if batch is not None and not batch.attempts and self.identity in (identity, None) and len(batch.records) > self._numbers_left:
            self.refuse(batch)
            return None
        return batch

    def send(self, batch: OutgoingBatch, identity: Identity) -> None:
        """Mark a batch as on its way, and count its numbers."""
        begins = batch.identity is None
        if begins and self.identity not in (identity, None):
            self._numbers_left = self.sequence_max + 1
        super().send(batch, identity)
        self._numbers_left -= len(batch.records) if begins else 0

    def begin_again(self) -> None:
        """Count from 0 under the next identity."""
        super().begin_again()
        self._numbers_left = self.sequence_max + 1


class EndingProducer(IdempotentProducer):
    """An idempotent producer that takes the next epoch at the end of the numbers, for all of its partitions."""

    queue_class = EndingQueue

    def _go_on(self, now_ms: int) -> None:
        super()._go_on(now_ms)
        if any(queue.needs_new_identity() for queue in self._queues.values()):
            super()._go_on(now_ms)


class EndingSender(GatedProducer):
    """The sending half of a transactional producer that does so: the records that would go across the end are given up."""

    queue_class = EndingQueue

    def _go_on(self, now_ms: int) -> None:
        super()._go_on(now_ms)
        self._renew_identities()


class EndingTransactionalProducer(TransactionalProducer):
    """Aborts the transaction that would go across the end, and takes the next epoch for the one after it."""

    sender_class = EndingSender
