"""IncrementalAlterConfigs (44): change single configurations of topics, brokers, groups and the
like, and leave all others unchanged.

It replaces AlterConfigs (33), which resets all others.
Source: KIP-339, KIP-714 (client metrics), KIP-848 (groups); IncrementalAlterConfigsRequest.json,
IncrementalAlterConfigsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, int8, int16, int32, message, string, structure

SET = 0
DELETE = 1  # back to the default
APPEND = 2  # to a list
SUBTRACT = 3  # from a list

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_CONFIG,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.INVALID_REQUEST,  # a resource twice, an unknown type, or another broker's loggers
    ErrorCode.POLICY_VIOLATION,
    ErrorCode.BROKER_ID_NOT_REGISTERED,
)


@structure
class AlterableConfig:
    """One operation on one configuration: SET, DELETE, APPEND or SUBTRACT.

    The value is null for DELETE.
    """

    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+")


@structure
class AlterConfigsResource:
    """A resource (its type is a ConfigResourceType); the operations on one resource succeed or fail
    together.
    """

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    """validate_only validates without changing anything.

    Requests for a broker's loggers are sent to that broker, others to the controller.
    """

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@structure
class AlterConfigsResourceResponse:
    """The result of one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


@message(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    """One result per resource, in the server's own order."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
