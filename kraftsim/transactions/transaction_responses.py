"""Shared by the transaction APIs: how errors are mapped for older clients, and the events of
rejected requests.

Source: KIP-588; kafka.server.KafkaApis.
"""

from kraftsim.server.call import Call
from kraftsim.transactions.events import ProducerFenced, TransactionRefused
from kraftsim.transactions.rules_coordinator import Expected
from kraftsim.world.interface import World
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode


def error_in_version(error: ErrorCode, call: Call, first_version_with_fenced: int) -> ErrorCode:
    """Return an error in the form of the request version: PRODUCER_FENCED was
    INVALID_PRODUCER_EPOCH before.
    """
    if error is ErrorCode.PRODUCER_FENCED and call.api_version < first_version_with_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def emit_refusal(
    world: World, key: ApiKey, transactional_id: str, producer: Expected, error: ErrorCode
) -> None:
    """Emit an event for a rejected request of a producer."""
    api = key.name
    if error is ErrorCode.PRODUCER_FENCED:
        world.emit(
            ProducerFenced(
                transactional_id=transactional_id,
                producer_id=producer[0],
                producer_epoch=producer[1],
                api=api,
            )
        )
    elif error is not ErrorCode.NONE:
        world.emit(
            TransactionRefused(
                api=api,
                transactional_id=transactional_id,
                error_code=error,
                producer_id=producer[0],
                producer_epoch=producer[1],
            )
        )
