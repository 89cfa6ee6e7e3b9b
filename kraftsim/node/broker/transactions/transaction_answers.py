"""What the APIs of transactions have in common: how an error is spelt to older clients, and what the event log hears of a refusal.

Source: KIP-588; kafka.server.KafkaApis.
"""

from kraftsim.core.transactions.transaction_rules import Expected
from kraftsim.events.transactions import ProducerFenced, TransactionRefused
from kraftsim.node.call import Call
from kraftsim.world.interface import World
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode


def spelt(error: ErrorCode, call: Call, first_version_with_fenced: int) -> ErrorCode:
    """Return an error as the client's version knows it: PRODUCER_FENCED was INVALID_PRODUCER_EPOCH."""
    if error is ErrorCode.PRODUCER_FENCED and call.api_version < first_version_with_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def note_refusal(world: World, key: ApiKey, transactional_id: str, producer: Expected, error: ErrorCode) -> None:
    """Note that a producer was turned away, and why."""
    api = key.name
    if error is ErrorCode.PRODUCER_FENCED:
        world.note(ProducerFenced(transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], api=api))
    elif error is not ErrorCode.NONE:
        world.note(
            TransactionRefused(api=api, transactional_id=transactional_id, error_code=error, producer_id=producer[0], producer_epoch=producer[1])
        )
