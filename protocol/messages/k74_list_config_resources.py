"""ListConfigResources (74): the names of resources that can have configurations of their own.

v0 was called ListClientMetricsResources and lists only those.
Source: KIP-1000, KIP-1142 (v1: any type); ListConfigResourcesRequest.json,
ListConfigResourcesResponse.json; 3.9: ListClientMetricsResourcesRequest.json,
ListClientMetricsResourcesResponse.json.
"""

from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.schema import array, int8, int16, int32, message, string, structure

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,  # a type that cannot be listed, or ZooKeeper mode
)


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    """v1 adds the types (ConfigResourceType); an empty list means all that the server can list."""

    resource_types: list[int] = array(int8, since=1)


@structure
class ConfigResource:
    """A resource and its ConfigResourceType, which is implicit in v0."""

    resource_name: str = string()
    resource_type: int = int8(
        since=1, default=ConfigResourceType.CLIENT_METRICS.value, ignorable=True
    )


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    """Resources are listed whether or not anything is configured for them, except client metrics
    and groups, which exist by their configuration.
    """

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
