"""DeleteGroups: delete empty groups and their offsets.

Source: kafka.coordinator.group.GroupCoordinator.handleDeleteGroups, KIP-229.
"""

from kraftsim.groups.group_coordinator import GroupsBroker
from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.slices import Slices
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k42_delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(broker: GroupsBroker, call: Call) -> Answer:
    """Return one result for each group, however often it is named: GROUP_ID_NOT_FOUND,
    NON_EMPTY_GROUP or NONE.
    """
    request = call.body
    assert isinstance(request, DeleteGroupsRequest), "dispatch decodes by API key"
    names = list(dict.fromkeys(request.groups_names))
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=name, error_code=_delete(broker, name)) for name in names
        ]
    )


def _delete(broker: GroupsBroker, group_id: str) -> ErrorCode:
    led = broker.groups.coordinated(group_id, may_be_empty=True)
    if isinstance(led, ErrorCode):
        return led
    error = led.settled(led.shard.delete(group_id, led.now()))
    return error


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Return a response with the same error for every group."""
    request = call.body
    assert isinstance(request, DeleteGroupsRequest), "dispatch decodes by API key"
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=name, error_code=error)
            for name in dict.fromkeys(request.groups_names)
        ]
    )


SLICES = Slices(
    entries="groups_names", rows="results", counting=lambda names: list(dict.fromkeys(names))
)
HANDLER = Handler(key=ApiKey.DELETE_GROUPS, handle=handle, refuse=refuse, slices=SLICES)
