"""InitProducerId: a fresh producer id for an idempotent producer.

Without a transactional id a given producer id and epoch are ignored: the reset of an idempotent producer is a new id. Transactional ids have no
coordinator yet.

Source: KIP-98, KIP-360, kafka.coordinator.transaction.TransactionCoordinator.handleInitProducerId.
"""

from kraftsim.core.decision import Refusal
from kraftsim.core.producer_ids.block import ProducerId
from kraftsim.core.producer_ids.source import Waiting
from kraftsim.events.producer_ids import InitProducerIdRefused, ProducerIdReturned
from kraftsim.node.broker.broker import Broker
from kraftsim.node.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.errors import ErrorCode
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

FIRST_PRODUCER_EPOCH = 0


def handle(broker: Broker, call: Call) -> Answer | Deferred:
    """Answer 0 with a fresh id, COORDINATOR_LOAD_IN_PROGRESS, INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT or COORDINATOR_NOT_AVAILABLE."""
    request = call.body
    assert isinstance(request, InitProducerIdRequest), "dispatch decodes by API key"
    refusal = _refusal(broker, request)
    if refusal is not None:
        return _refused(broker, call, refusal.error)
    claimed = broker.producer_ids.claim()
    if not isinstance(claimed, Waiting):
        return _answer(broker, call, claimed)
    later = Deferred()
    broker.producer_ids.wait(claimed, lambda result: _complete(broker, call, later, result))
    return later


def _refusal(broker: Broker, request: InitProducerIdRequest) -> Refusal | None:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return Refusal(ErrorCode.INVALID_REQUEST, "producer id and epoch are given together or not at all")
    if request.transactional_id is None:
        return None
    if not request.transactional_id:
        return Refusal(ErrorCode.INVALID_REQUEST, "a transactional id has at least one character")
    if not 0 < request.transaction_timeout_ms <= broker.config.transaction_max_timeout_ms:
        return Refusal(ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"{request.transaction_timeout_ms} ms")
    return Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "there are no transactions yet")


def _complete(broker: Broker, call: Call, later: Deferred, result: ProducerId | Refusal) -> None:
    """Answer one who waited; an id whose client went away is lost, as in Kafka."""
    if not later.is_abandoned:
        later.complete(_answer(broker, call, result))


def _answer(broker: Broker, call: Call, result: ProducerId | Refusal) -> Answer:
    if isinstance(result, Refusal):
        return _refused(broker, call, result.error)
    broker.world.note(ProducerIdReturned(producer_id=result, producer_epoch=FIRST_PRODUCER_EPOCH, fresh=True, client_id=call.client_id))
    return InitProducerIdResponse(producer_id=result, producer_epoch=FIRST_PRODUCER_EPOCH)


def _refused(broker: Broker, call: Call, error: ErrorCode) -> Answer:
    request = call.body
    assert isinstance(request, InitProducerIdRequest), "dispatch decodes by API key"
    broker.world.note(InitProducerIdRefused(error_code=error, transactional_id=request.transactional_id, client_id=call.client_id))
    return InitProducerIdResponse(error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


HANDLER = Handler(key=ApiKey.INIT_PRODUCER_ID, handle=handle, refuse=lambda call, error: InitProducerIdResponse(error_code=error))
