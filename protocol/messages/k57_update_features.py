"""UpdateFeatures (57): finalize the levels of features for the whole cluster, such as
metadata.version or transaction.version.

The controller accepts it only if every registered broker and controller supports the level.
Source: KIP-584, KIP-778 (v1: kinds of downgrade), KIP-1022 (v2: all or nothing);
UpdateFeaturesRequest.json, UpdateFeaturesResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, int8, int16, int32, message, string, structure

UPGRADE = 1
SAFE_DOWNGRADE = 2  # only if nothing gets lost
UNSAFE_DOWNGRADE = 3

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.INVALID_REQUEST,  # ZooKeeper mode only
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.FEATURE_UPDATE_FAILED,  # ZooKeeper mode only
)


@structure
class FeatureUpdateKey:
    """The new level of a feature; below 1 the feature is removed. v0 allows downgrades or not, v1
    distinguishes safe from unsafe ones.
    """

    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean(until=0)
    upgrade_type: int = int8(since=1, default=UPGRADE)


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    """Up to 3.9 each feature changes or fails independently, since 4.0 all change together or none
    does. v1 adds validate_only.
    """

    timeout_ms: int = int32(default=60000, kafka_name="timeoutMs")
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean(since=1)


@structure
class UpdatableFeatureResult:
    """The result of one feature."""

    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    """Up to v1 one result per feature; since v2 only a top-level error, which names the first
    feature that could not change.
    """

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, until=1, ignorable=True)
