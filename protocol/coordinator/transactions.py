"""TransactionLog (0): the state of a transactional id in its coordinator; a null value is a
tombstone.

It is written before a change takes effect, so that another coordinator can continue where this one
stopped.
Source: KIP-98, KIP-360, KIP-890 (v1), KIP-939; TransactionLog, TransactionLogKey.json,
TransactionLogValue.json.
"""

from protocol.schema import array, int8, int16, int32, int64, message, string, structure

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


@message(key=0, kind="coordinator-key", versions="0", flexible="none")
class TransactionLogKey:
    """By transactional id, whose hash also determines the partition."""

    transactional_id: str = string()


@structure
class PartitionsSchema:
    """Partitions of one topic that are part of the transaction."""

    topic: str = string()
    partition_ids: list[int] = array(int32)


@message(key=0, kind="coordinator-value", versions="0-1", flexible="1+")
class TransactionLogValue:
    """The state of the id; v1, with tagged fields, is written from transaction.version 1 on
    (KIP-890).

    The status is a TransactionState's number.
    """

    producer_id: int = int64()
    previous_producer_id: int = int64(tag=0, tagged="1+", default=NO_PRODUCER_ID)
    next_producer_id: int = int64(tag=1, tagged="1+", default=NO_PRODUCER_ID)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16(tag=3, tagged="1+", default=NO_PRODUCER_EPOCH)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16(tag=2, tagged="1+")
