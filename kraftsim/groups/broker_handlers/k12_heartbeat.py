"""Heartbeat: keeps a member's session alive; the response tells whether the member must rejoin.

Source: kafka.coordinator.group.GroupCoordinator.handleHeartbeat.
"""

from kraftsim.groups.group_coordinator import GroupsBroker
from kraftsim.server.call import Answer, Call, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(broker: GroupsBroker, call: Call) -> Answer:
    """Respond with the state of the group.

    During loading no member is rejected: all sessions restart afterwards.
    """
    request = call.body
    assert isinstance(request, HeartbeatRequest), "dispatch decodes by API key"
    led = broker.groups.coordinated(request.group_id)
    if isinstance(led, ErrorCode):
        return HeartbeatResponse(
            error_code=ErrorCode.NONE if led is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else led
        )
    error = led.settled(
        led.shard.heartbeat(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            led.now(),
        )
    )
    return HeartbeatResponse(error_code=error)


HANDLER = Handler(
    key=ApiKey.HEARTBEAT,
    handle=handle,
    refuse=lambda call, error: HeartbeatResponse(error_code=error),
)
