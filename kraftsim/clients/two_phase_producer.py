"""A transactional producer that participates in a two-phase commit (KIP-939): it prepares, an
external database decides, and it completes, or its successor does.

Source: KIP-939; org.apache.kafka.clients.producer.{KafkaProducer.prepareTransaction,
KafkaProducer.completeTransaction, PreparedTxnState}.
"""

from typing import NamedTuple

from kraftsim.clients.events_transactions import (
    TransactionEndAsked,
    TransactionFound,
    TransactionPrepared,
)
from kraftsim.clients.rules_producer_steps import FlushAsked, ProducerIdentity
from kraftsim.clients.rules_transaction_steps import (
    AbortAsked,
    CommitAsked,
    PrepareAsked,
    ProducerState,
)
from kraftsim.clients.transactional_producer import TransactionalClient
from protocol.errors import ErrorCode
from protocol.records.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


class KeptTransaction(NamedTuple):
    """What a database keeps of a prepared transaction: its identity, and, for the analysis, its
    name.
    """

    identity: ProducerIdentity
    transaction: str


class TwoPhaseClient(TransactionalClient):
    """A participant: `init`, `complete` for what was found, then `begin`, `send`, `prepare` and
    `commit` or `abort`, repeatedly.
    """

    @property
    def found(self) -> ProducerIdentity | None:
        """The identity of the transaction that is prepared, also if its producer was another."""
        return self._rules.prepared

    async def init(self) -> None:
        """Initialize the transactional id; with the setting `keeps` the open transaction of the
        producer before it stays, and must be completed.
        """
        await super().init()
        found = self.found or ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        self._world.emit(
            TransactionFound(
                client_id=self.client_id,
                transactional_id=self._settings.transactional_id,
                producer_id=found.producer_id,
                producer_epoch=found.producer_epoch,
            )
        )

    async def prepare(self) -> KeptTransaction:
        """Return what names the transaction, once every record is acknowledged and every offset
        stored; afterwards it can only be ended.

        Raises AbortNeeded or ProducerFailed.
        """
        self._require_no_error()
        self._loop.take(FlushAsked())
        while self._rules.record_count or self._rules.has_offsets_to_send:
            self._require_no_error()
            await self._loop.change()
        self._require_no_error()
        self._loop.take(PrepareAsked())
        identity = self.found
        assert identity is not None, "a prepared transaction has an identity"
        self._world.emit(
            TransactionPrepared(
                client_id=self.client_id,
                transactional_id=self._settings.transactional_id,
                transaction=self.transaction,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
            )
        )
        return KeptTransaction(identity, self.transaction)

    async def complete(self, decided: KeptTransaction | None) -> bool:
        """Commit what was found if it is what the database decided last, abort it otherwise; return
        whether there was anything to complete.

        Raises ProducerFailed.
        """
        if self.found is None:
            return False
        if decided is not None and decided.identity == self.found:
            self._world.emit(
                TransactionEndAsked(
                    client_id=self.client_id,
                    transactional_id=self._settings.transactional_id,
                    transaction=decided.transaction,
                    is_commit=True,
                )
            )
            self._loop.take(CommitAsked())
        else:
            self._loop.take(AbortAsked())
        await self._until_ready()
        return True

    def _emit_ended(self, outcome: str, error_code: ErrorCode) -> None:
        """Emit the outcome of a transaction of this producer's own."""
        if self._transaction_count:
            super()._emit_ended(outcome, error_code)

    async def _until_ready(self) -> None:
        while self._rules.state not in (ProducerState.READY, ProducerState.PREPARED):
            self._require_no_error()
            await self._loop.change()
