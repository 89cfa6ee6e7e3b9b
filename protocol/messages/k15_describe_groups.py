"""DescribeGroups (15): state, protocol and members of classic groups, for administrators.

Source: KIP-430 (v3: operations), KIP-345 (v4: static members), KIP-1043 (v6: unknown groups are an
error); DescribeGroupsRequest.json, DescribeGroupsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, byte_string, int16, int32, message, string, structure

OPERATIONS_NOT_ASKED_FOR = -(2**31)

ERRORS = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_ID_NOT_FOUND,  # since v6; before, an unknown group was returned as Dead
)


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    """v3 can request the operations that the client is authorized for."""

    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean(since=3)


@structure
class DescribedGroupMember:
    """A member and its client host; its assignment is filled in only while the group is Stable."""

    member_id: str = string()
    group_instance_id: str | None = string(since=4, nullable="4+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = byte_string()
    member_assignment: bytes = byte_string()


@structure
class DescribedGroup:
    """One group: PreparingRebalance, CompletingRebalance, Stable, Empty or Dead.

    authorized_operations is a bit per AclOperation.
    """

    error_code: int = int16()
    error_message: str | None = string(since=6, nullable="6+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(since=3, default=OPERATIONS_NOT_ASKED_FOR)


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    """One result per requested group."""

    throttle_time_ms: int = int32(since=1, ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
