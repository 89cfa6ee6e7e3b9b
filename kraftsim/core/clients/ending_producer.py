"""Producers that do not wrap sequence numbers: at 2^31-1 they bump the epoch and continue from 0.

KIP-758 considered and rejected this: without wrapping sequences no bound is needed for sequences
behind the latest batch. An idempotent producer completes the open batches and continues with the
next epoch; a transaction that would exceed the maximum is aborted.
Source: KIP-758 (Rejected Alternatives); Apache Kafka's producer wraps instead
(DefaultRecordBatch.incrementSequence).
"""

from kraftsim.core.clients.gated_producer import GatedProducer
from kraftsim.core.clients.idempotent_producer import IdempotentProducer
from kraftsim.core.clients.partition_queue import PartitionQueue
from kraftsim.core.clients.producer_steps import Identity, OutgoingBatch, TopicPartition
from kraftsim.core.clients.transactional_producer import TransactionalProducer
from kraftsim.producer_state.rules_entries import LAST_SEQUENCE


class EndingQueue(PartitionQueue):
    """Gives no batch a sequence beyond `sequence_max`: it waits for the next epoch instead."""

    sequence_max = LAST_SEQUENCE

    def __init__(self, where: TopicPartition, first_sequence: int = 0) -> None:
        super().__init__(where, first_sequence)
        self._numbers_left = self.sequence_max + 1 - first_sequence

    def sendable(self, identity: Identity, now_ms: int) -> OutgoingBatch | None:
        """Return the batch that may be sent now; one that would exceed the maximum is refused
        before it is sent.
        """
        batch = super().sendable(identity, now_ms)
        if (
            batch is not None
            and not batch.attempts
            and self.identity in (identity, None)
            and len(batch.records) > self._numbers_left
        ):
            self.refuse(batch)
            return None
        return batch

    def send(self, batch: OutgoingBatch, identity: Identity) -> None:
        """Mark a batch as in flight, and count its sequences."""
        begins = batch.identity is None
        if begins and self.identity not in (identity, None):
            self._numbers_left = self.sequence_max + 1
        super().send(batch, identity)
        self._numbers_left -= len(batch.records) if begins else 0

    def restart_sequences(self) -> None:
        """Restart at sequence 0 with the next identity."""
        super().restart_sequences()
        self._numbers_left = self.sequence_max + 1


class EndingProducer(IdempotentProducer):
    """An idempotent producer that bumps its epoch for all partitions at the end of the sequence
    numbers.
    """

    queue_class = EndingQueue

    def _go_on(self, now_ms: int) -> None:
        super()._go_on(now_ms)
        if any(queue.needs_new_identity() for queue in self._queues.values()):
            super()._go_on(now_ms)


class EndingSender(GatedProducer):
    """The sender of such a transactional producer: records that would exceed the maximum fail."""

    queue_class = EndingQueue

    def _go_on(self, now_ms: int) -> None:
        super()._go_on(now_ms)
        self._renew_identities()


class EndingTransactionalProducer(TransactionalProducer):
    """Aborts the transaction that would exceed the maximum, and bumps the epoch for the next
    one.
    """

    sender_class = EndingSender
