"""CreateAcls (30): add access control entries; an existing one is no error.

A KRaft broker forwards the request to the active controller in an Envelope.
Source: KIP-140 (v0), KIP-290 (v1: pattern types), KIP-373 (v3: users as resources), KIP-896;
CreateAclsRequest.json, CreateAclsResponse.json.
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
    ErrorCode.INVALID_REQUEST,  # an empty name, or a number that an entry cannot have, such as ANY
    ErrorCode.SECURITY_DISABLED,  # the node has no authorizer
)


@structure
class AclCreation:
    """One entry, with the values of AclResourceType, AclPatternType, AclOperation and
    AclPermissionType. v0 supports literal names only.
    """

    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(since=1, default=int(AclPatternType.LITERAL))
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message(key=30, versions="0-3", flexible="2+")
class CreateAclsRequest:
    """The entries to add."""

    creations: list[AclCreation] = array(AclCreation)


@structure
class AclCreationResult:
    """The result of one entry."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@message(key=30, versions="0-3", flexible="2+")
class CreateAclsResponse:
    """One result per entry, in the order of the request."""

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
