"""The sending half of a transactional producer: an idempotent producer whose identity, and whose leave to write to a partition, come from outside.

Where sequences are lost it does not go on under an epoch of its own making: the records are given up, and the transaction with them.
Source: KIP-98, KIP-360, org.apache.kafka.clients.producer.internals.{Sender, RecordAccumulator}.
"""

from collections.abc import Callable

from kraftsim.core.clients.idempotent_producer import IdempotentProducer
from kraftsim.core.clients.producer_steps import BatchState, Identity, ProducerEffect, ProducerSettings, TopicPartition
from protocol.errors import ErrorCode


class GatedProducer(IdempotentProducer):
    """Sends to a partition only what `may_send_to` lets through."""

    def __init__(self, settings: ProducerSettings, may_send_to: Callable[[TopicPartition], bool]) -> None:
        super().__init__(settings)
        self._gate = may_send_to

    @property
    def has_lost_sequence(self) -> bool:
        """Whether some sequence was given out that a log does not have, or may not have."""
        return any(queue.has_lost_sequence for queue in self._queues.values())

    @property
    def has_sent(self) -> bool:
        """Whether the fate of some batch is open: it was sent, and neither delivered nor given up."""
        return any(batch.attempts for queue in self._queues.values() for batch in queue.batches)

    def use(self, identity: Identity) -> None:
        """Go on under an identity; partitions that lost a sequence begin again under it."""
        for queue in self._queues.values():
            if queue.has_lost_sequence:
                queue.begin_again()
        self._identity = identity

    def drop_unsent(self, error_code: ErrorCode) -> list[ProducerEffect]:
        """Give up every record that was never sent."""
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
        """Give up what was refused: a new identity comes with the next transaction."""
        for queue in self._queues.values():
            for batch in [each for each in queue.batches if each.state is BatchState.REFUSED]:
                queue.remove(batch, sequence_is_used=False)
                self._give_up(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "its sequence cannot be used")
