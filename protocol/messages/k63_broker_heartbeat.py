"""BrokerHeartbeat (63): a broker tells the active controller that it lives, how far it has read, and what it wants.

The controller fences a broker that stays silent, lets one in that has caught up, and lets one go that leads nothing any more.
Source: KIP-631, KIP-858 (v1: failed log directories), KIP-1066 (v2: cordoned log directories); BrokerHeartbeatRequest.json,
BrokerHeartbeatResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, int16, int32, int64, message, uuid

ERRORS = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.STALE_BROKER_EPOCH,
    ErrorCode.BROKER_ID_NOT_REGISTERED,
)


@message(key=63, versions="0-2", flexible="0+")
class BrokerHeartbeatRequest:
    """current_metadata_offset is the last offset applied, not the next one."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: list[bytes] = array(uuid, tag=0, tagged="1+")
    cordoned_log_dirs: list[bytes] | None = array(uuid, tag=1, tagged="2+", nullable="2+", default=None)


@message(key=63, versions="0-2", flexible="0+")
class BrokerHeartbeatResponse:
    """What the controller has made of the broker; a broker believes itself fenced until it reads otherwise."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()
