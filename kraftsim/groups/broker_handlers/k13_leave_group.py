"""LeaveGroup: members leave or are removed.

Source: kafka.coordinator.group.GroupCoordinator.handleLeaveGroup, LeaveGroupResponse, KIP-345.
"""

from typing import Final

from kraftsim.groups.group_coordinator import GroupsBroker
from kraftsim.server.call import Answer, Call, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

FIRST_VERSION_WITH_MEMBERS: Final = 3


def handle(broker: GroupsBroker, call: Call) -> Answer:
    """Return a result for each member; up to version 2 there is one, and its error is at request
    level.
    """
    request = call.body
    assert isinstance(request, LeaveGroupRequest), "dispatch decodes by API key"
    led = broker.groups.coordinated(request.group_id)
    if isinstance(led, ErrorCode):
        return LeaveGroupResponse(error_code=led)
    members: list[tuple[str, str | None]] = [
        (each.member_id, each.group_instance_id) for each in request.members
    ]
    if call.api_version < FIRST_VERSION_WITH_MEMBERS:
        members = [(request.member_id, None)]
    errors = led.settled(led.shard.leave(request.group_id, members, led.now()))
    if isinstance(errors, ErrorCode):
        return LeaveGroupResponse(error_code=errors)
    if call.api_version < FIRST_VERSION_WITH_MEMBERS:
        return LeaveGroupResponse(error_code=errors[0])
    return LeaveGroupResponse(
        error_code=ErrorCode.NONE,
        members=[
            MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=error)
            for (member_id, instance_id), error in zip(members, errors, strict=True)
        ],
    )


HANDLER = Handler(
    key=ApiKey.LEAVE_GROUP,
    handle=handle,
    refuse=lambda call, error: LeaveGroupResponse(error_code=error),
)
