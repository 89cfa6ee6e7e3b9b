"""DeleteAcls (31): remove the access control entries that match any of these filters.

A KRaft broker forwards the request to the active controller in an Envelope.
Source: KIP-140 (v0), KIP-290 (v1: pattern types), KIP-373 (v3: users as resources), KIP-896;
DeleteAclsRequest.json, DeleteAclsResponse.json.
"""

from protocol.acls import AclPatternType
from protocol.errors import ErrorCode
from protocol.schema import array, int8, int16, int32, message, string, structure

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.SECURITY_DISABLED,  # the node has no authorizer
)


@structure
class DeleteAclsFilter:
    """Like the filter of DescribeAcls (29): null and ANY match everything."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8(since=1, default=int(AclPatternType.LITERAL))
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


@message(key=31, versions="0-3", flexible="2+")
class DeleteAclsRequest:
    """The filters; each has its own result."""

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


@structure
class DeleteAclsMatchingAcl:
    """An entry that matched a filter, and whether it was removed."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(since=1, default=int(AclPatternType.LITERAL))
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@structure
class DeleteAclsFilterResult:
    """The result of one filter."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


@message(key=31, versions="0-3", flexible="2+")
class DeleteAclsResponse:
    """One result per filter, in the order of the request."""

    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
