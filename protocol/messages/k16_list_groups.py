"""ListGroups (16): the groups this broker is the coordinator of; to list all groups, every broker
has to be queried.

Source: KIP-518 (v4: states), KIP-848 (v5: types); ListGroupsRequest.json, ListGroupsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, message, string, structure

ERRORS = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,  # some groups may be missing
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    """An empty filter matches everything. v4 filters by state (`Stable`), v5 by type (`classic`,
    `consumer`), case-insensitively.
    """

    states_filter: list[str] = array(string, since=4)
    types_filter: list[str] = array(string, since=5)


@structure
class ListedGroup:
    """A group; the protocol type is empty if it only stores offsets."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4, ignorable=True)
    group_type: str = string(since=5, ignorable=True)


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    """The groups that the client is authorized to describe."""

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
