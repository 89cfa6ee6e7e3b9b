"""Requests of a transactional producer: add partitions and the offsets of a group to a transaction,
and end it.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from kraftsim.core.decision import Refusal
from kraftsim.groups.group_coordinator import GroupsBroker
from kraftsim.metadata.rules_topic_names import GROUP_METADATA, is_internal
from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.server.serving_broker import ImageBroker, RunningBroker
from kraftsim.server.slices import Slices
from kraftsim.transactions.rules_coordinator import EPOCH_BUMPING_VERSION, EndTxnInput
from kraftsim.transactions.rules_state import TopicPartition
from kraftsim.transactions.transaction_coordinator import (
    TransactionalIdentity,
    TransactionsBroker,
    emit_refusal,
    error_in_version,
)
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse

# --------------------------------------------------------------------------------------------------
# Requests that add partitions to a transaction: those of topics, and that of a group's offsets
#
# The coordinator must have them in its log before the producer writes to them: it sends markers to
# these partitions and to no others.

ADD_PARTITIONS_TO_TXN_FIRST_VERSION_WITH_FENCED: Final = 2
FIRST_VERSION_OF_BROKERS: Final = 4
ADD_PARTITIONS_TO_TXN_VERSION_OF_CLIENTS, VERSION_OF_BROKERS = 0, 2
"""The transaction.version of the producer: brokers add partitions only on behalf of producers with
version 2.
"""
Errors = Mapping[TopicPartition, ErrorCode]


class AddingBroker(TransactionsBroker, ImageBroker, RunningBroker, Protocol):
    """A broker that adds partitions to transactions."""


def handle_add_partitions_to_txn(broker: AddingBroker, call: Call) -> Answer | Deferred:
    """AddPartitionsToTxn: adds partitions to a transaction before they are written; brokers verify
    that they are in it (verify_only).

    Up to version 3 the client is a producer with one transaction, since version 4 a broker with
    several. If one partition cannot be added, none is.

    Return a result for each partition once every transaction of the request is processed.

    Source: KIP-98, KIP-588, KIP-890; kafka.server.KafkaApis.handleAddPartitionsToTxnRequest.
    """
    request = call.body
    assert isinstance(request, AddPartitionsToTxnRequest), "dispatch decodes by API key"
    transactions = (
        [_only(request)]
        if call.api_version < FIRST_VERSION_OF_BROKERS
        else list(request.transactions)
    )
    if not transactions:
        return AddPartitionsToTxnResponse()
    later = Deferred()
    results: list[AddPartitionsToTxnResult | None] = [None] * len(transactions)
    left_count = len(transactions)

    def on_end(index: int, errors: Errors) -> None:
        nonlocal left_count
        results[index] = _result(transactions[index], errors)
        left_count -= 1
        if not left_count:
            later.complete(_response(call, results))

    for index, transaction in enumerate(transactions):
        # misc: mypy infers no type for a lambda with a default
        _serve(broker, call, transaction, lambda errors, index=index: on_end(index, errors))  # type: ignore[misc]
    return later


def _only(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


def _serve(
    broker: AddingBroker,
    call: Call,
    transaction: AddPartitionsToTxnTransaction,
    on_end: Callable[[Errors], None],
) -> None:
    """Add the partitions of one transaction, or verify that they are in it."""
    partitions = _partitions(transaction.topics)
    refused = _refused(broker, call, partitions)
    if refused:
        on_end({each: refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions})
        return
    transactional_id, producer = (
        transaction.transactional_id,
        (transaction.producer_id, transaction.producer_epoch),
    )
    if transaction.verify_only:
        on_end(broker.transactions.verify(transactional_id, producer, partitions))
        return

    def on_added(error: ErrorCode) -> None:
        emit_refusal(broker.world, ApiKey.ADD_PARTITIONS_TO_TXN, transactional_id, producer, error)
        on_end(
            dict.fromkeys(
                partitions,
                error_in_version(error, call, ADD_PARTITIONS_TO_TXN_FIRST_VERSION_WITH_FENCED),
            )
        )

    version = (
        ADD_PARTITIONS_TO_TXN_VERSION_OF_CLIENTS
        if call.api_version < FIRST_VERSION_OF_BROKERS
        else VERSION_OF_BROKERS
    )
    broker.transactions.add(transactional_id, producer, partitions, version, on_added)


def _refused(
    broker: AddingBroker, call: Call, partitions: list[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Return the partitions that cannot be added: those that do not exist, and internal topics if
    the client is not a broker.
    """
    errors = {}
    image, is_client = broker.image, call.api_version < FIRST_VERSION_OF_BROKERS
    name, found = None, None
    for topic, number in partitions:
        if topic != name:  # the partitions of a topic follow each other
            name, found = topic, image.topic(topic)
        if is_client and is_internal(topic):
            errors[topic, number] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif found is None or number not in found.partitions:
            errors[topic, number] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return errors


def _partitions(topics: list[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [(topic.name, number) for topic in topics for number in topic.partitions]


def _result(transaction: AddPartitionsToTxnTransaction, errors: Errors) -> AddPartitionsToTxnResult:
    topics = [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=number, partition_error_code=errors[topic.name, number]
                )
                for number in topic.partitions
            ],
        )
        for topic in transaction.topics
    ]
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id, topic_results=topics
    )


def _response(
    call: Call, results: list[AddPartitionsToTxnResult | None]
) -> AddPartitionsToTxnResponse:
    done = [result for result in results if result is not None]
    if call.api_version < FIRST_VERSION_OF_BROKERS:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=done[0].topic_results)
    return AddPartitionsToTxnResponse(results_by_transaction=done)


def refuse_add_partitions_to_txn(call: Call, error: ErrorCode) -> Answer:
    """Return a response with the same error for everything."""
    request = call.body
    assert isinstance(request, AddPartitionsToTxnRequest), "dispatch decodes by API key"
    if call.api_version >= FIRST_VERSION_OF_BROKERS:
        return AddPartitionsToTxnResponse(error_code=error)
    only = _only(request)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=_result(
            only, dict.fromkeys(_partitions(only.topics), error)
        ).topic_results
    )


ADD_PARTITIONS_TO_TXN_SLICES = Slices(entries="transactions", rows="results_by_transaction")
ADD_PARTITIONS_TO_TXN = Handler(
    key=ApiKey.ADD_PARTITIONS_TO_TXN,
    handle=handle_add_partitions_to_txn,
    refuse=refuse_add_partitions_to_txn,
    slices=ADD_PARTITIONS_TO_TXN_SLICES,
)


ADD_OFFSETS_TO_TXN_FIRST_VERSION_WITH_FENCED: Final = 2
ADD_OFFSETS_TO_TXN_VERSION_OF_CLIENTS: Final = 0


class OffsetsAddingBroker(TransactionsBroker, GroupsBroker, RunningBroker, Protocol):
    """A broker that adds the offsets of a group to transactions."""


def handle_add_offsets_to_txn(broker: OffsetsAddingBroker, call: Call) -> Deferred:
    """AddOffsetsToTxn: adds a group's partition of `__consumer_offsets` to a transaction.

    Respond once the partition is in the transaction.

    The group need not exist, and its id may be empty.

    Source: KIP-98, KIP-588; kafka.server.KafkaApis.handleAddOffsetsToTxnRequest.
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
                error_code=error_in_version(
                    error, call, ADD_OFFSETS_TO_TXN_FIRST_VERSION_WITH_FENCED
                )
            )
        )

    partition = (GROUP_METADATA, broker.groups.partition_of(request.group_id))
    broker.transactions.add(
        transactional_id, producer, [partition], ADD_OFFSETS_TO_TXN_VERSION_OF_CLIENTS, on_end
    )
    return later


ADD_OFFSETS_TO_TXN = Handler(
    key=ApiKey.ADD_OFFSETS_TO_TXN,
    handle=handle_add_offsets_to_txn,
    refuse=lambda call, error: AddOffsetsToTxnResponse(error_code=error),
)


# --------------------------------------------------------------------------------------------------
# EndTxn: commit or abort
#
# The response is sent once the prepare state is written; the markers follow.
#
# Since version 5 the producer continues with a bumped epoch, or with a new id when the epochs are
# exhausted.
# Source: KIP-98, KIP-588, KIP-890; kafka.server.KafkaApis.handleEndTxnRequest.

FIRST_VERSION_WITH_FENCED: Final = 2
FIRST_VERSION_WITH_BUMP: Final = 5
WITHOUT_BUMP: Final = 0


class EndingBroker(TransactionsBroker, RunningBroker, Protocol):
    """A broker that commits and aborts transactions."""


def handle_end_txn(broker: EndingBroker, call: Call) -> Deferred:
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


END_TXN = Handler(
    key=ApiKey.END_TXN,
    handle=handle_end_txn,
    refuse=lambda call, error: EndTxnResponse(error_code=error),
)


HANDLERS = (
    ADD_PARTITIONS_TO_TXN,
    ADD_OFFSETS_TO_TXN,
    END_TXN,
)
