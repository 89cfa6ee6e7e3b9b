"""InitProducerId: a new producer id for an idempotent producer, or the next epoch of a
transactional id, which fences the previous producer.

Without a transactional id the producer id and epoch of the request are ignored: an idempotent
producer resets with a new id.

Version 6 (KIP-939) is offered where `kraftsim.two.phase.commit` says so; its answers are those of
Apache Kafka 4.1.2 and 4.4.0 with unstable.api.versions.enable, but for keep_prepared_txn.

Source: KIP-98, KIP-360, KIP-588, KIP-939; kafka.server.KafkaApis.handleInitProducerIdRequest,
TransactionCoordinator.handleInitProducerId.
"""

from typing import Final, Protocol

from kraftsim.core.decision import Refusal
from kraftsim.producer_ids.broker import ProducerIds
from kraftsim.producer_ids.events import (
    InitProducerIdRefused,
    ProducerIdReturned,
    ProducerIdSpent,
)
from kraftsim.producer_ids.rules_allocation import ProducerId
from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.server.config_keys import ANNOUNCED_WINDOW, BY_INIT_PRODUCER_ID
from kraftsim.server.serving_broker import ConfiguredBroker, RunningBroker
from kraftsim.transactions.rules_coordinator import KEEPS_NOTHING
from kraftsim.transactions.rules_state import ENDLESS_MS
from kraftsim.transactions.transaction_coordinator import (
    TransactionalIdentity,
    TransactionsBroker,
    emit_refusal,
    error_in_version,
)
from protocol.announced_window import announce_window
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.records.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

FIRST_PRODUCER_EPOCH = 0
FIRST_VERSION_WITH_FENCED: Final = 4
FIRST_VERSION_WITH_TAGS: Final = 2


class IdentifyingBroker(TransactionsBroker, ConfiguredBroker, RunningBroker, Protocol):
    """A broker that allocates producer ids."""

    @property
    def producer_ids(self) -> ProducerIds:
        """The block of producer ids that it allocates from."""
        ...


def handle(broker: IdentifyingBroker, call: Call) -> Answer | Deferred:
    """Return a producer id and epoch, or an error."""
    request = call.body
    assert isinstance(request, InitProducerIdRequest), "dispatch decodes by API key"
    refusal = _refusal(broker, request)
    if refusal is not None:
        return _refused(broker, call, refusal.error)
    if request.transactional_id is not None:
        return _init(broker, call, request, request.transactional_id)
    later = Deferred()
    claimed = broker.producer_ids.claim(lambda result: _complete(broker, call, later, result))
    return later if claimed is None else _fresh(broker, call, claimed)


def _refusal(broker: IdentifyingBroker, request: InitProducerIdRequest) -> Refusal | None:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return Refusal(ErrorCode.INVALID_REQUEST, "producer id and epoch must be set together")
    if request.transactional_id is None:
        return None
    if not request.transactional_id:
        return Refusal(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    if request.enable2_pc and not broker.config.transaction_two_phase_commit_enable:
        return Refusal(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "two-phase commit is not enabled"
        )
    if request.keep_prepared_txn and not broker.config.keeps_prepared_transactions:
        return KEEPS_NOTHING
    is_bounded = 0 < request.transaction_timeout_ms <= broker.config.transaction_max_timeout_ms
    if not is_bounded and not request.enable2_pc:
        return Refusal(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"{request.transaction_timeout_ms} ms"
        )
    return None


def _init(
    broker: IdentifyingBroker, call: Call, request: InitProducerIdRequest, transactional_id: str
) -> Deferred:
    """Call the coordinator.

    The result is final even if the client has disconnected: the epoch is bumped.
    """
    later = Deferred()
    expected = (
        None
        if request.producer_id == NO_PRODUCER_ID
        else (request.producer_id, request.producer_epoch)
    )

    def on_end(result: TransactionalIdentity | Refusal) -> None:
        later.complete(_answer(broker, call, request, result))

    timeout_ms = ENDLESS_MS if request.enable2_pc else request.transaction_timeout_ms
    broker.transactions.init(
        transactional_id, timeout_ms, expected, on_end, keeps=request.keep_prepared_txn
    )
    return later


def _answer(
    broker: IdentifyingBroker,
    call: Call,
    request: InitProducerIdRequest,
    result: TransactionalIdentity | Refusal,
) -> Answer:
    if isinstance(result, Refusal):
        emit_refusal(
            broker.world,
            ApiKey.INIT_PRODUCER_ID,
            request.transactional_id or "",
            (request.producer_id, request.producer_epoch),
            result.error,
        )
        return _refused(
            broker, call, error_in_version(result.error, call, FIRST_VERSION_WITH_FENCED)
        )
    broker.world.emit(
        ProducerIdReturned(
            producer_id=result.producer_id,
            producer_epoch=result.producer_epoch,
            fresh=result.is_fresh,
            transactional_id=request.transactional_id,
            client_id=call.client_id,
        )
    )
    return _announcing(
        broker,
        call,
        InitProducerIdResponse(
            producer_id=result.producer_id,
            producer_epoch=result.producer_epoch,
            ongoing_txn_producer_id=result.kept[0],
            ongoing_txn_producer_epoch=result.kept[1],
        ),
    )


def _complete(
    broker: IdentifyingBroker, call: Call, later: Deferred, result: ProducerId | Refusal
) -> None:
    """Complete a waiting request; an id whose client has disconnected is lost, as in Kafka."""
    if not later.is_abandoned:
        later.complete(_fresh(broker, call, result))
    elif not isinstance(result, Refusal):
        broker.world.emit(ProducerIdSpent(producer_id=result, reason="closed connection"))


def _fresh(broker: IdentifyingBroker, call: Call, result: ProducerId | Refusal) -> Answer:
    if isinstance(result, Refusal):
        return _refused(broker, call, result.error)
    broker.world.emit(
        ProducerIdReturned(
            producer_id=result,
            producer_epoch=FIRST_PRODUCER_EPOCH,
            fresh=True,
            client_id=call.client_id,
        )
    )
    return _announcing(
        broker,
        call,
        InitProducerIdResponse(producer_id=result, producer_epoch=FIRST_PRODUCER_EPOCH),
    )


def _announcing(
    broker: IdentifyingBroker, call: Call, answer: InitProducerIdResponse
) -> InitProducerIdResponse:
    """Return the response with this broker's window, if it is configured to announce it here
    (KIP-758).
    """
    config = broker.config
    announces = (
        config.producer_state == ANNOUNCED_WINDOW and config.window_carrier == BY_INIT_PRODUCER_ID
    )
    if announces and call.api_version >= FIRST_VERSION_WITH_TAGS:
        announce_window(answer, config.max_in_flight_sequence_number_per_connection)
    return answer


def _refused(broker: IdentifyingBroker, call: Call, error: ErrorCode) -> Answer:
    request = call.body
    assert isinstance(request, InitProducerIdRequest), "dispatch decodes by API key"
    broker.world.emit(
        InitProducerIdRefused(
            error_code=error, transactional_id=request.transactional_id, client_id=call.client_id
        )
    )
    return InitProducerIdResponse(
        error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Return an error response."""
    return InitProducerIdResponse(
        error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )


HANDLER = Handler(key=ApiKey.INIT_PRODUCER_ID, handle=handle, refuse=refuse)
