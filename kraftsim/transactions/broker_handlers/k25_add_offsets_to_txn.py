"""AddOffsetsToTxn: adds a group's partition of `__consumer_offsets` to a transaction.

Source: KIP-98, KIP-588; kafka.server.KafkaApis.handleAddOffsetsToTxnRequest.
"""

from typing import Final, Protocol

from kraftsim.groups.group_coordinator import GroupsBroker
from kraftsim.metadata.rules_topic_names import GROUP_METADATA
from kraftsim.server.call import Call, Deferred, Handler
from kraftsim.server.serving_broker import RunningBroker
from kraftsim.transactions.transaction_coordinator import (
    TransactionsBroker,
    emit_refusal,
    error_in_version,
)
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

FIRST_VERSION_WITH_FENCED: Final = 2
VERSION_OF_CLIENTS: Final = 0


class OffsetsAddingBroker(TransactionsBroker, GroupsBroker, RunningBroker, Protocol):
    """A broker that adds the offsets of a group to transactions."""


def handle(broker: OffsetsAddingBroker, call: Call) -> Deferred:
    """Respond once the partition is in the transaction.

    The group need not exist, and its id may be empty.
    """
    request = call.body
    assert isinstance(request, AddOffsetsToTxnRequest), "dispatch decodes by API key"
    later = Deferred()
    transactional_id, producer = (
        request.transactional_id,
        (request.producer_id, request.producer_epoch),
    )

    def on_end(error: ErrorCode) -> None:
        emit_refusal(broker.world, ApiKey.ADD_OFFSETS_TO_TXN, transactional_id, producer, error)
        later.complete(
            AddOffsetsToTxnResponse(
                error_code=error_in_version(error, call, FIRST_VERSION_WITH_FENCED)
            )
        )

    partition = (GROUP_METADATA, broker.groups.partition_of(request.group_id))
    broker.transactions.add(transactional_id, producer, [partition], VERSION_OF_CLIENTS, on_end)
    return later


HANDLER = Handler(
    key=ApiKey.ADD_OFFSETS_TO_TXN,
    handle=handle,
    refuse=lambda call, error: AddOffsetsToTxnResponse(error_code=error),
)
