"""The sender of a transactional producer: an idempotent producer whose identity and partitions are
controlled from outside.

A lost sequence does not bump the epoch here: the records fail, and so does the transaction.
Source: KIP-98, KIP-360, org.apache.kafka.clients.producer.internals.{Sender, RecordAccumulator}.
"""

from collections.abc import Callable

from kraftsim.core.clients.idempotent_producer import IdempotentProducer
from kraftsim.core.clients.producer_steps import (
    BatchState,
    Identity,
    ProducerEffect,
    ProducerSettings,
    TopicPartition,
)
from protocol.errors import ErrorCode


class GatedProducer(IdempotentProducer):
    """Sends only to partitions for which `may_send_to` is true."""

    def __init__(
        self, settings: ProducerSettings, may_send_to: Callable[[TopicPartition], bool]
    ) -> None:
        super().__init__(settings)
        self._gate = may_send_to

    @property
    def has_lost_sequence(self) -> bool:
        """Whether a used sequence is missing, or may be missing, in some log."""
        return any(queue.has_lost_sequence for queue in self._queues.values())

    @property
    def has_sent(self) -> bool:
        """Whether a sent batch is neither acknowledged nor failed."""
        return any(batch.attempts for queue in self._queues.values() for batch in queue.batches)

    def use(self, identity: Identity) -> None:
        """Continue with an identity; partitions with a lost sequence restart with it."""
        for queue in self._queues.values():
            if queue.has_lost_sequence:
                queue.restart_sequences()
        self._identity = identity

    def drop_unsent(self, error_code: ErrorCode) -> list[ProducerEffect]:
        """Fail every record that was never sent."""
        self._effects = []
        for queue in self._queues.values():
            queue.close_open_batch()
            for batch in [each for each in queue.batches if not each.attempts]:
                queue.remove(batch, sequence_is_used=False)
                self._give_up(batch, error_code, "the transaction is aborted")
        effects, self._effects = self._effects, []
        return effects

    def _may_send_to(self, where: TopicPartition) -> bool:
        return self._gate(where)

    def _renew_identities(self) -> None:
        """Fail the refused batches: a new identity comes with the next transaction."""
        for queue in self._queues.values():
            for batch in [each for each in queue.batches if each.state is BatchState.REFUSED]:
                queue.remove(batch, sequence_is_used=False)
                self._give_up(
                    batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "its sequence cannot be used"
                )
