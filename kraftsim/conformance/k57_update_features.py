"""UpdateFeatures (57): which levels can be finalized. All changes are to the current level.

Source: KIP-584, KIP-778, KIP-1022, org.apache.kafka.controller.FeatureControlManager.
"""

from kraftsim.conformance.expect import Unmet, expect, expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.k57_update_features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

REQUIREMENTS = Requirements("features", 1, "UpdateFeatures")
CONTROL = "FeatureControlManager"
METADATA = "metadata.version"
KINDS_SINCE = 1
MESSAGES_SINCE = 3
TOO_LOW = 4
"""3.3-IV0: below every level that a current cluster may be downgraded to."""


def _level(target: Target) -> int:
    """Return the finalized level of metadata.version."""
    with target.peer() as peer:
        asked = ApiVersionsRequest(client_software_name="kraftsim", client_software_version="1.0")
        answer = peer.ask(asked, target.newest(ApiKey.API_VERSIONS), ApiVersionsResponse)
    found = [row.max_version_level for row in answer.finalized_features if row.name == METADATA]
    if not found:
        raise Unmet("ApiVersions returns no level of metadata.version")
    return found[0]


def _update(
    target: Target,
    *updates: tuple[str, int, int],
    version: int | None = None,
    validate_only: bool = True,
) -> UpdateFeaturesResponse:
    rows = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        for name, level, kind in updates
    ]
    chosen = target.newest(ApiKey.UPDATE_FEATURES) if version is None else version
    with target.peer() as peer:
        return peer.ask(
            UpdateFeaturesRequest(feature_updates=rows, validate_only=validate_only),
            chosen,
            UpdateFeaturesResponse,
        )


def _fate(answer: UpdateFeaturesResponse) -> tuple[int, str]:
    """Return error code and message of a request for one feature: up to 3.9 in the feature's row,
    then at the top level.
    """
    if answer.error_code == ErrorCode.NONE and answer.results:
        return answer.results[0].error_code, answer.results[0].error_message or ""
    return answer.error_code, answer.error_message or ""


def _refused(target: Target, name: str, level: int, kind: int, why: str) -> None:
    for version in target.versions(ApiKey.UPDATE_FEATURES, since=KINDS_SINCE):
        error, words = _fate(_update(target, (name, level, kind), version=version))
        expect_error(
            error, ErrorCode.INVALID_UPDATE_VERSION, f"version {version}: {name} to {level}"
        )
        expect(
            why in words, f"version {version}: {name} to {level}: {words!r} does not say {why!r}"
        )


@REQUIREMENTS.that(1, "the current level can be finalized again", source=CONTROL)
def same_level_again(target: Target) -> None:
    level = _level(target)
    for version in target.versions(ApiKey.UPDATE_FEATURES, since=KINDS_SINCE):
        answer = _update(target, (METADATA, level, UPGRADE), version=version, validate_only=False)
        expect_error(_fate(answer)[0], ErrorCode.NONE, f"version {version}: {METADATA} to {level}")
    expect_equal(_level(target), level, "the level")


@REQUIREMENTS.that(
    2,
    "a level that some node does not support is rejected with INVALID_UPDATE_VERSION",
    source="QuorumFeatures.reasonNotSupported",
)
def unknown_level(target: Target) -> None:
    _refused(target, METADATA, 999, UPGRADE, "only supports versions ")
    _refused(target, METADATA, 0, SAFE_DOWNGRADE, "only supports versions ")
    _refused(target, METADATA, -1, UPGRADE, "A feature version cannot be less than 0.")
    _refused(target, "no.such.feature", 1, UPGRADE, "does not support this feature.")


@REQUIREMENTS.that(3, "a lower level requires a downgrade type", source="KIP-778")
def downgrade_by_name(target: Target) -> None:
    why = (
        "Can't downgrade the version of this feature without setting the upgrade type to either "
        "safe or unsafe downgrade."
    )
    _refused(target, METADATA, _level(target) - 1, UPGRADE, why)


@REQUIREMENTS.that(
    4,
    "a downgrade that might lose metadata is rejected, with both the safe and the unsafe type",
    source="KIP-778, KAFKA-13896",
    since="3.5",
)
def lossy(target: Target) -> None:
    lossy_level = max(TOO_LOW, 8)
    _refused(
        target,
        METADATA,
        lossy_level,
        SAFE_DOWNGRADE,
        "Refusing to perform the requested downgrade because it might delete metadata information.",
    )
    _refused(
        target,
        METADATA,
        lossy_level,
        UNSAFE_DOWNGRADE,
        "Unsafe metadata downgrade is not supported in this version.",
    )


@REQUIREMENTS.that(
    5, "an unknown upgrade type is rejected with INVALID_UPDATE_VERSION", source=CONTROL
)
def no_kind(target: Target) -> None:
    _refused(
        target,
        METADATA,
        _level(target),
        9,
        "The controller does not support the given upgrade type.",
    )


@REQUIREMENTS.that(
    6, "features are updated independently", source=f"KIP-584; {CONTROL}", until="3.9"
)
def each_by_itself(target: Target) -> None:
    answer = _update(target, ("no.such.feature", 1, UPGRADE), (METADATA, _level(target), UPGRADE))
    expect_error(answer.error_code, ErrorCode.NONE, "the top-level error")
    found = {row.feature: row.error_code for row in answer.results}
    expect_equal(
        found,
        {"no.such.feature": int(ErrorCode.INVALID_UPDATE_VERSION), METADATA: 0},
        "errors by feature",
    )


@REQUIREMENTS.that(
    7, "features are updated all together or not at all", source="KIP-1022", since="4.0"
)
def all_or_nothing(target: Target) -> None:
    answer = _update(target, ("no.such.feature", 1, UPGRADE), (METADATA, _level(target), UPGRADE))
    expect_error(answer.error_code, ErrorCode.INVALID_UPDATE_VERSION, "the top-level error")
    expect_equal(answer.results, [], "results by feature")
    words = "The update failed for all features since the following feature had an error: "
    expect(
        (answer.error_message or "").startswith(words), f"what is said: {answer.error_message!r}"
    )
