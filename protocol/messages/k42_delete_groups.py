"""DeleteGroups (42): delete empty consumer groups, with all their offsets; sent to the coordinator
of each group.

Source: KIP-229, KIP-1331 (v3: messages); DeleteGroupsRequest.json, DeleteGroupsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, message, string, structure

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.NON_EMPTY_GROUP,
    ErrorCode.GROUP_ID_NOT_FOUND,
    # v3: a plugin of the broker failed (KIP-1331); UNKNOWN_SERVER_ERROR before
    ErrorCode.GROUP_DELETION_FAILED,
)


@message(key=42, versions="0-3", flexible="2+")
class DeleteGroupsRequest:
    """The groups may be of any type."""

    groups_names: list[str] = array(string)


@structure
class DeletableGroupResult:
    """The result of one group; v3 adds a message, null if it was deleted."""

    group_id: str = string()
    error_code: int = int16()
    error_message: str | None = string(since=3, nullable="3+", default=None, ignorable=True)


@message(key=42, versions="0-3", flexible="2+")
class DeleteGroupsResponse:
    """One result per requested group."""

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
