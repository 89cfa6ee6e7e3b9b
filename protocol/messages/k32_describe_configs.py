"""DescribeConfigs (32): the configurations of topics, brokers, loggers, groups and client metrics,
with where each value comes from.

Source: KIP-133 (v0), KIP-226 (v1: sources and synonyms), KIP-569 (v3: types and documentation),
KIP-896; DescribeConfigsRequest.json, DescribeConfigsResponse.json.
"""

from protocol.config_resources import NO_CONFIG_SOURCE
from protocol.errors import ErrorCode
from protocol.schema import array, boolean, int8, int16, int32, message, string, structure

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    # another broker's configurations, or a type of resource that the release does not know
    ErrorCode.INVALID_REQUEST,
)


@structure
class DescribeConfigsResource:
    """A resource (ConfigResourceType and name); configuration_keys null: all.

    A broker's name is its id, or empty for all brokers.
    """

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string, nullable="0+")


@message(key=32, versions="0-4", flexible="4+")
class DescribeConfigsRequest:
    """A broker's own configurations are returned by that broker only; all others by any broker."""

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean(since=1)
    include_documentation: bool = boolean(since=3)


@structure
class DescribeConfigsSynonym:
    """A value that would apply if those before it were not set."""

    name: str = string(since=1)
    value: str | None = string(since=1, nullable="0+")
    source: int = int8(since=1)


@structure
class DescribeConfigsResourceResult:
    """One configuration; the value is null if it is sensitive or not set.

    v0 contains only whether the value is the default, v1 its source (ConfigSource), v3 its type
    (ConfigType) and documentation.
    """

    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    is_default: bool = boolean(until=0)
    config_source: int = int8(since=1, default=NO_CONFIG_SOURCE, ignorable=True)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, since=1, ignorable=True)
    config_type: int = int8(since=3, ignorable=True)
    documentation: str | None = string(since=3, nullable="0+", ignorable=True)


@structure
class DescribeConfigsResult:
    """The configurations of one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


@message(key=32, versions="0-4", flexible="4+")
class DescribeConfigsResponse:
    """One result per resource, in the order of the request."""

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
