"""ControlledShutdown (7): a broker of a ZooKeeper-mode cluster asks the controller to take its leaderships away, so that it can stop unnoticed.

Asked again until no partition remains or the broker loses patience. A KRaft broker asks in its heartbeat instead (KIP-631). v0 is the one request
in front of which stands header v0, without a client id.
Source: KIP-380 (v2: broker epochs), KIP-896; ControlledShutdownRequest.json, ControlledShutdownResponse.json of 3.9.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, int64, message, string, structure

NO_BROKER_EPOCH = -1

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.BROKER_NOT_AVAILABLE,  # the controller does not know this broker
    ErrorCode.STALE_CONTROLLER_EPOCH,  # asked of a broker that no longer is the controller
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.STALE_BROKER_EPOCH,  # said by a former life of the broker
)


@message(key=7, versions="0-3", flexible="3+")
class ControlledShutdownRequest:
    """v2 says which life of the broker wants to stop."""

    broker_id: int = int32()
    broker_epoch: int = int64(since=2, default=NO_BROKER_EPOCH, ignorable=True)


@structure
class RemainingPartition:
    """A partition that the broker still leads, because no other replica is in sync."""

    topic_name: str = string()
    partition_index: int = int32()


@message(key=7, versions="0-3", flexible="3+")
class ControlledShutdownResponse:
    """The broker may stop when there is neither an error nor a partition left."""

    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition)
