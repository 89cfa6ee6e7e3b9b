"""The records of `__transaction_state`: serialization and parsing.

Version 0 until the cluster has transaction.version 1, then version 1 with its tagged fields.
Source: KIP-98, KIP-890; org.apache.kafka.coordinator.transaction.TransactionLog.
"""

from typing import Final

from kraftsim.core.transactions.transaction_entry import TopicPartition, TransactionFacts
from kraftsim.core.transactions.transaction_state import EMPTY, TransactionState
from protocol.coordinator.registry import build_record
from protocol.coordinator.t00_transaction_log import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

PLAIN_VALUE: Final = 0
TAGGED_VALUE: Final = 1


def value_version(transaction_version: int) -> int:
    """Return the value version for a level of the feature transaction.version."""
    return TAGGED_VALUE if transaction_version >= 1 else PLAIN_VALUE


def facts_record(
    transactional_id: str, facts: TransactionFacts, version: int
) -> tuple[bytes, bytes | None]:
    """Return key and value of the record of these facts."""
    value = TransactionLogValue(
        producer_id=facts.producer_id,
        producer_epoch=facts.producer_epoch,
        transaction_timeout_ms=facts.timeout_ms,
        transaction_status=int(facts.state),
        transaction_partitions=None if facts.state is EMPTY else _by_topic(facts.partitions),
        transaction_last_update_timestamp_ms=facts.last_update_ms,
        transaction_start_timestamp_ms=facts.start_ms,
    )
    if version >= TAGGED_VALUE:
        value.client_transaction_version = facts.transaction_version
        value.previous_producer_id = facts.previous_producer_id
        value.next_producer_id = facts.next_producer_id
    return build_record(TransactionLogKey(transactional_id=transactional_id), value, version)


def tombstone(transactional_id: str) -> tuple[bytes, bytes | None]:
    """Return key and value of the tombstone of an id."""
    return build_record(TransactionLogKey(transactional_id=transactional_id), None)


def read_facts(value: TransactionLogValue) -> TransactionFacts:
    """Return the facts of a record."""
    partitions = tuple(
        (topic.topic, number)
        for topic in value.transaction_partitions or ()
        for number in topic.partition_ids
    )
    return TransactionFacts(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=partitions,
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        transaction_version=value.client_transaction_version,
    )


def _by_topic(partitions: tuple[TopicPartition, ...]) -> list[PartitionsSchema]:
    topics: dict[str, PartitionsSchema] = {}
    for topic, number in partitions:
        topics.setdefault(topic, PartitionsSchema(topic=topic)).partition_ids.append(number)
    return list(topics.values())
