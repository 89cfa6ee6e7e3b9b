"""ApiVersions (18): the API versions that a node supports.

The first request on a connection, sent before versions are negotiated: its response always has
header v0, and a node that does not support the requested version responds with version 0, error
UNSUPPORTED_VERSION and its own range for this one key.
Source: KIP-35; KIP-511 (v3: software names, v0 fallback), KIP-584 (features), KAFKA-17492 (v4),
KIP-1242 (v5: the intended node); ApiVersionsRequest.json, ApiVersionsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, int16, int32, int64, message, string, structure

ANY_NODE = -1
"""The client does not know yet which node it has reached."""

ERRORS = (
    ErrorCode.UNSUPPORTED_VERSION,  # of ApiVersions itself; the answer is one of version 0
    # software names of odd characters (v3); a cluster without a node, or a node without a cluster
    # (v5)
    ErrorCode.INVALID_REQUEST,
    ErrorCode.REBOOTSTRAP_REQUIRED,  # since v5: another cluster or node than the client intends
)


@message(key=18, versions="0-5", flexible="3+")
class ApiVersionsRequest:
    """v3 adds the client's software, v5 the cluster and node that the client intends to reach
    (4.4).
    """

    client_software_name: str = string(since=3, ignorable=True)
    client_software_version: str = string(since=3, ignorable=True)
    cluster_id: str | None = string(since=5, nullable="5+", ignorable=True, default=None)
    node_id: int = int32(since=5, ignorable=True, default=ANY_NODE)


@structure
class ApiVersion:
    """One API and the versions of it that the node supports, both inclusive."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@structure
class SupportedFeatureKey:
    """A feature that the node's software supports."""

    name: str = string(since=3)
    min_version: int = int16(since=3)
    max_version: int = int16(since=3)


@structure
class FinalizedFeatureKey:
    """A feature and its finalized level in the cluster."""

    name: str = string(since=3)
    max_version_level: int = int16(since=3)
    min_version_level: int = int16(since=3)


@message(key=18, versions="0-5", flexible="3+")
class ApiVersionsResponse:
    """The APIs of this listener; since v3 the features, as tagged fields. v4 also lists features
    with a minimum level of 0.
    """

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(since=1, ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(
        SupportedFeatureKey, tag=0, tagged="3+", ignorable=True
    )
    finalized_features_epoch: int = int64(tag=1, tagged="3+", ignorable=True, default=-1)
    finalized_features: list[FinalizedFeatureKey] = array(
        FinalizedFeatureKey, tag=2, tagged="3+", ignorable=True
    )
    zk_migration_ready: bool = boolean(tag=3, tagged="3+", ignorable=True)
