"""AlterConfigs (33): replace all configurations of a resource; those that are not listed are reset
to their default.

Two clients that each change one configuration overwrite each other, so IncrementalAlterConfigs (44)
replaced it. A KRaft broker forwards it to the active controller in an Envelope.
Source: KIP-133, KIP-339; AlterConfigsRequest.json, AlterConfigsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, int8, int16, int32, message, string, structure

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_CONFIG,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.POLICY_VIOLATION,  # refused by `alter.config.policy.class.name`
)


@structure
class AlterableConfig:
    """A name and its value; null is rejected."""

    name: str = string()
    value: str | None = string(nullable="0+")


@structure
class AlterConfigsResource:
    """The complete configuration of a resource (ConfigResourceType and name).

    A broker's name is its id, or empty for all brokers.
    """

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message(key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    """validate_only: validate without changing anything."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@structure
class AlterConfigsResourceResponse:
    """The result of one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


@message(key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    """One result per resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
