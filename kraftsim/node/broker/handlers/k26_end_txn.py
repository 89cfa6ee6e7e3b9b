"""EndTxn: commit or abort. Answered once the decision is written; the markers follow.

Since version 5 the producer goes on with a higher epoch, or with another id where the epochs are used up.
Source: KIP-98, KIP-588, KIP-890; kafka.server.KafkaApis.handleEndTxnRequest.
"""

from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.core.transactions.transaction_rules import EPOCH_BUMPING_VERSION, EndAsked
from kraftsim.node.broker.broker import Broker
from kraftsim.node.broker.transactions.transaction_answers import note_refusal, spelt
from kraftsim.node.broker.transactions.transaction_coordinator import Identity
from kraftsim.node.call import Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse

FIRST_VERSION_WITH_FENCED: Final = 2
FIRST_VERSION_WITH_BUMP: Final = 5
WITHOUT_BUMP: Final = 0


def handle(broker: Broker, call: Call) -> Deferred:
    """Answer with an error, or with 0 and who the producer is from now on."""
    request = call.body
    assert isinstance(request, EndTxnRequest), "dispatch decodes by API key"
    later = Deferred()
    transactional_id = request.transactional_id
    asked = EndAsked(
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        is_commit=request.committed,
        transaction_version=WITHOUT_BUMP if call.api_version < FIRST_VERSION_WITH_BUMP else EPOCH_BUMPING_VERSION,
    )

    def on_end(result: Identity | Refusal) -> None:
        if isinstance(result, Refusal):
            note_refusal(broker.world, ApiKey.END_TXN, transactional_id, (asked.producer_id, asked.producer_epoch), result.error)
            later.complete(EndTxnResponse(error_code=spelt(result.error, call, FIRST_VERSION_WITH_FENCED)))
        else:
            later.complete(EndTxnResponse(producer_id=result.producer_id, producer_epoch=result.producer_epoch))

    broker.transactions.end(transactional_id, asked, on_end)
    return later


HANDLER = Handler(key=ApiKey.END_TXN, handle=handle, refuse=lambda call, error: EndTxnResponse(error_code=error))
