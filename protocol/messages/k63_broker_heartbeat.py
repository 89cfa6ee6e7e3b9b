"""BrokerHeartbeat (63): a broker keeps its session with the active controller alive, and reports
its metadata offset and requested state.

The controller fences a broker without heartbeats, unfences one that has caught up, and lets one
shut down that leads no partition any more.
Source: KIP-631, KIP-858 (v1: failed log directories), KIP-1066 (v2: cordoned log directories);
BrokerHeartbeatRequest.json, BrokerHeartbeatResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, int16, int32, int64, message, uuid

ERRORS = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.STALE_BROKER_EPOCH,
    ErrorCode.BROKER_ID_NOT_REGISTERED,
    ErrorCode.REQUEST_TIMED_OUT,  # after half of broker.heartbeat.interval.ms
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
    cordoned_log_dirs: list[bytes] | None = array(
        uuid, tag=1, tagged="2+", nullable="2+", default=None
    )


@message(key=63, versions="0-2", flexible="0+")
class BrokerHeartbeatResponse:
    """The state of the broker in the controller; a broker treats itself as fenced until it reads
    otherwise.
    """

    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()
