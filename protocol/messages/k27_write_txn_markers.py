"""WriteTxnMarkers (27): the transaction coordinator makes leaders append the control batches that
end a transaction.

Sent to the leader of every partition in the transaction until each has appended its marker. An
administration tool may send it, too, to end a hanging transaction (KIP-664).
Source: KIP-98 (v0), KIP-1228 (v2), KIP-896; WriteTxnMarkersRequest.json,
WriteTxnMarkersResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, int8, int16, int32, int64, message, string, structure

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,  # the offsets of the transaction could not be made visible
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,  # also while a group coordinator is loading the partition
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.INVALID_REQUIRED_ACKS,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    # a log in message format 0 or 1 has no place for markers
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.INVALID_PRODUCER_EPOCH,  # the partition has seen a newer epoch of the producer
    # the partition has seen a marker of a newer coordinator
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


@structure
class WritableTxnMarkerTopic:
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


@structure
class WritableTxnMarker:
    """One transaction to end. transaction_result: committed or not.

    A partition rejects a coordinator_epoch older than the last one.

    transaction_version (v2) says whether the epoch was bumped with the decision (2), so that the
    partition can require a greater one.
    """

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8(since=2, ignorable=True)


@message(key=27, versions="0-2", flexible="1+")
class WriteTxnMarkersRequest:
    """Markers of many producers for one broker."""

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


@structure
class WritableTxnMarkerPartitionResult:
    """The result of one partition."""

    partition_index: int = int32()
    error_code: int = int16()


@structure
class WritableTxnMarkerTopicResult:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


@structure
class WritableTxnMarkerResult:
    """The results of one producer's transaction."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


@message(key=27, versions="0-2", flexible="1+")
class WriteTxnMarkersResponse:
    """One result per producer; two markers of one producer share theirs."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
