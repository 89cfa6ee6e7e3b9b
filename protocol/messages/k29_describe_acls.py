"""DescribeAcls (29): the access control entries that match a filter.

Source: KIP-140 (v0), KIP-290 (v1: pattern types), KIP-373 (v3: users as resources), KIP-896;
DescribeAclsRequest.json, DescribeAclsResponse.json.
"""

from protocol.acls import AclPatternType
from protocol.errors import ErrorCode
from protocol.schema import array, int8, int16, int32, message, string, structure

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,  # the broker is still reading the entries
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.SECURITY_DISABLED,  # the node has no authorizer
)


@message(key=29, versions="0-3", flexible="2+")
class DescribeAclsRequest:
    """The filter: numbers of AclResourceType, AclPatternType, AclOperation and AclPermissionType;
    null and ANY match everything.

    v0 supports literal names only, where a lone `*` is every resource; v3 adds the resource type
    USER.
    """

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8(since=1, default=int(AclPatternType.LITERAL))
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


@structure
class AclDescription:
    """The principal (`User:alice`), host (`*`: any), operation and permission."""

    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@structure
class DescribeAclsResource:
    """A resource, or a prefix of resource names, with its entries."""

    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(since=1, default=int(AclPatternType.LITERAL))
    acls: list[AclDescription] = array(AclDescription)


@message(key=29, versions="0-3", flexible="2+")
class DescribeAclsResponse:
    """Entries grouped by resource, or an error and none."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
