"""EndTxn: commit or abort.

The response is sent once the prepare state is written; the markers follow.

Since version 5 the producer continues with a bumped epoch, or with a new id when the epochs are
exhausted.
Source: KIP-98, KIP-588, KIP-890; kafka.server.KafkaApis.handleEndTxnRequest.
"""

from typing import Final, Protocol

from kraftsim.core.decision import Refusal
from kraftsim.server.call import Call, Deferred, Handler
from kraftsim.server.serving_broker import RunningBroker
from kraftsim.transactions.rules_coordinator import EPOCH_BUMPING_VERSION, EndTxnInput
from kraftsim.transactions.transaction_coordinator import (
    TransactionalIdentity,
    TransactionsBroker,
    emit_refusal,
    error_in_version,
)
from protocol.api_keys import ApiKey
from protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse

FIRST_VERSION_WITH_FENCED: Final = 2
FIRST_VERSION_WITH_BUMP: Final = 5
WITHOUT_BUMP: Final = 0


class EndingBroker(TransactionsBroker, RunningBroker, Protocol):
    """A broker that commits and aborts transactions."""


def handle(broker: EndingBroker, call: Call) -> Deferred:
    """Return an error, or the producer id and epoch for the next transaction."""
    request = call.body
    assert isinstance(request, EndTxnRequest), "dispatch decodes by API key"
    later = Deferred()
    transactional_id = request.transactional_id
    asked = EndTxnInput(
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        is_commit=request.committed,
        transaction_version=WITHOUT_BUMP
        if call.api_version < FIRST_VERSION_WITH_BUMP
        else EPOCH_BUMPING_VERSION,
    )

    def on_end(result: TransactionalIdentity | Refusal) -> None:
        if isinstance(result, Refusal):
            emit_refusal(
                broker.world,
                ApiKey.END_TXN,
                transactional_id,
                (asked.producer_id, asked.producer_epoch),
                result.error,
            )
            later.complete(
                EndTxnResponse(
                    error_code=error_in_version(result.error, call, FIRST_VERSION_WITH_FENCED)
                )
            )
        else:
            later.complete(
                EndTxnResponse(producer_id=result.producer_id, producer_epoch=result.producer_epoch)
            )

    broker.transactions.end(transactional_id, asked, on_end)
    return later


HANDLER = Handler(
    key=ApiKey.END_TXN, handle=handle, refuse=lambda call, error: EndTxnResponse(error_code=error)
)
