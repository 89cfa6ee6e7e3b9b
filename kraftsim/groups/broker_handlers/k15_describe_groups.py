"""DescribeGroups: state, protocol and members of classic groups.

Source: kafka.coordinator.group.GroupCoordinator.handleDescribeGroup,
kafka.coordinator.group.GroupMetadata.summary, KIP-430.
"""

from typing import Final

from kraftsim.groups.group_coordinator import GroupsBroker
from kraftsim.groups.rules_classic_group import ClassicGroup, GroupState
from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.slices import Slices
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k15_describe_groups import (
    OPERATIONS_NOT_ASKED_FOR,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

FIRST_VERSION_WITH_NOT_FOUND: Final = 6
"""KIP-1043."""
ALL_GROUP_OPERATIONS: Final = 0b1_0100_1000
"""Read, delete, describe: every operation is authorized without an authorizer."""


def handle(broker: GroupsBroker, call: Call) -> Answer:
    """Return a row for each group; an unknown group is Dead."""
    request = call.body
    assert isinstance(request, DescribeGroupsRequest), "dispatch decodes by API key"
    groups = [_describe(broker, group_id, call.api_version) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = ALL_GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=groups)


def _describe(broker: GroupsBroker, group_id: str, api_version: int) -> DescribedGroup:
    led = broker.groups.coordinated(group_id, may_be_empty=True)
    if isinstance(led, ErrorCode):
        return _refused(group_id, led)
    group = led.shard.groups.get(group_id)
    if group is None and api_version >= FIRST_VERSION_WITH_NOT_FOUND:
        is_other = group_id in led.shard.consumer_groups
        why = (
            f"Group {group_id} is not a classic group."
            if is_other
            else f"Group {group_id} not found."
        )
        return DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=why,
            group_id=group_id,
            group_state=GroupState.DEAD.value,
            protocol_type="",
            protocol_data="",
        )
    if group is None:
        return DescribedGroup(
            error_code=ErrorCode.NONE,
            group_id=group_id,
            group_state=GroupState.DEAD.value,
            protocol_type="",
            protocol_data="",
        )
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if group.is_in(GroupState.STABLE) else "",
        members=_members(group),
    )


def _members(group: ClassicGroup) -> list[DescribedGroupMember]:
    """Return the members. Metadata and assignments are included in state Stable only."""
    is_stable = group.is_in(GroupState.STABLE)
    return [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata_for(group.protocol_name or "") if is_stable else b"",
            member_assignment=member.assignment if is_stable else b"",
        )
        for member in group.members.values()
    ]


def _refused(group_id: str, error: ErrorCode) -> DescribedGroup:
    return DescribedGroup(
        error_code=error,
        group_id=group_id,
        group_state="",
        protocol_type="",
        protocol_data="",
        authorized_operations=OPERATIONS_NOT_ASKED_FOR,
    )


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Return a response with the same error for every group."""
    request = call.body
    assert isinstance(request, DescribeGroupsRequest), "dispatch decodes by API key"
    return DescribeGroupsResponse(groups=[_refused(group_id, error) for group_id in request.groups])


def _weight(broker: GroupsBroker, group_id: str) -> int:
    led = broker.groups.coordinated(group_id, may_be_empty=True)
    group = None if isinstance(led, ErrorCode) else led.shard.groups.get(group_id)
    return 1 if group is None else 1 + len(group.members)


SLICES = Slices(entries="groups", rows="groups", weight=_weight)
HANDLER = Handler(key=ApiKey.DESCRIBE_GROUPS, handle=handle, refuse=refuse, slices=SLICES)
