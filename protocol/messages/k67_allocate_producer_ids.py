"""AllocateProducerIds (67): a broker requests a block of producer ids from the active controller.

A block is allocated to one broker permanently: ids that a broker does not assign before it stops
are never used.
Source: KIP-730; AllocateProducerIdsRequest.json, AllocateProducerIdsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import int16, int32, int64, message

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,  # the ids are exhausted
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.STALE_BROKER_EPOCH,
    ErrorCode.BROKER_ID_NOT_REGISTERED,
)


@message(key=67, versions="0", flexible="0+")
class AllocateProducerIdsRequest:
    """Rejected unless the broker is registered with this very epoch."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


@message(key=67, versions="0", flexible="0+")
class AllocateProducerIdsResponse:
    """The first id of the block and its length: start is inclusive, start + len exclusive."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id_start: int = int64()
    producer_id_len: int = int32()
