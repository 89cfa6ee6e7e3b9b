"""ControlledShutdown (7): a broker of a ZooKeeper-mode cluster asks the controller to move its
leaderships away before it stops.

Retried until no partition remains or the retries are used up. A KRaft broker requests it in its
heartbeat instead (KIP-631). v0 is the only request with header v0, without a client id.
Source: KIP-380 (v2: broker epochs), KIP-896; ControlledShutdownRequest.json,
ControlledShutdownResponse.json of 3.9.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, int64, message, string, structure

NO_BROKER_EPOCH = -1

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.BROKER_NOT_AVAILABLE,  # the controller does not know this broker
    ErrorCode.STALE_CONTROLLER_EPOCH,  # asked of a broker that no longer is the controller
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.STALE_BROKER_EPOCH,  # sent by an earlier incarnation of the broker
)


@message(key=7, versions="0-3", flexible="3+")
class ControlledShutdownRequest:
    """v2 adds the broker epoch."""

    broker_id: int = int32()
    broker_epoch: int = int64(since=2, default=NO_BROKER_EPOCH, ignorable=True)


@structure
class RemainingPartition:
    """A partition that the broker still leads, because no other replica is in sync."""

    topic_name: str = string()
    partition_index: int = int32()


@message(key=7, versions="0-3", flexible="3+")
class ControlledShutdownResponse:
    """The broker may stop if there is neither an error nor a remaining partition."""

    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition)
