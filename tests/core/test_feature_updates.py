"""Which feature levels can be finalized, with Kafka's messages (FeatureControlManager,
QuorumFeatures); verified with 3.9.1 and 4.4.0.
"""

import pytest

from kraftsim.core.decision import Decision, Refusal
from kraftsim.metadata.rules_feature_updates import decide_update_features
from protocol.errors import ErrorCode
from protocol.messages.k57_update_features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from protocol.metadata.settings import MIGRATION, FeatureLevelRecord, ZkMigrationStateRecord
from tests.core.registries import SUPPORTED, Cluster

METADATA = "metadata.version"
WITH_TRANSACTIONS = {**SUPPORTED, "transaction.version": (0, 2), METADATA: (1, 33)}


def request(*updates: tuple[str, int, int], validate_only: bool = False) -> UpdateFeaturesRequest:
    """Request (feature, level, kind of update)."""
    rows = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        for name, level, kind in updates
    ]
    return UpdateFeaturesRequest(feature_updates=rows, validate_only=validate_only)


def why_not(cluster: Cluster, name: str, level: int, kind: int) -> str | None:
    """Return the error message of a single update."""
    decision = decide_update_features(cluster.state.feature_view(), request((name, level, kind)), 1)
    assert isinstance(decision, Decision)
    refusal = decision.result[0][1]
    assert refusal is None or refusal.error == ErrorCode.INVALID_UPDATE_VERSION
    assert (refusal is None) == bool(decision.records)
    return None if refusal is None else refusal.why


@pytest.mark.parametrize(
    ("level", "kind", "why"),
    [
        (21, UPGRADE, None),
        (21, SAFE_DOWNGRADE, None),
        (20, SAFE_DOWNGRADE, None),
        (17, UNSAFE_DOWNGRADE, None),
        (16, SAFE_DOWNGRADE,
         "Invalid metadata.version 16. Refusing to perform the requested downgrade because it "
         "might delete metadata information."),
        (16, UNSAFE_DOWNGRADE,
         "Invalid metadata.version 16. Unsafe metadata downgrade is not supported in this "
         "version."),
        (3, SAFE_DOWNGRADE,
         "Invalid metadata.version 3. Unable to set a metadata.version less than 3.3-IV0"),
        (0, SAFE_DOWNGRADE,
         "Invalid update version 0 for feature metadata.version. Local controller 101 only "
         "supports versions 1-21"),
        (22, UPGRADE,
         "Invalid update version 22 for feature metadata.version. Local controller 101 only "
         "supports versions 1-21"),
        (-1, UPGRADE,
         "Invalid update version -1 for feature metadata.version. A feature version cannot be "
         "less than 0."),
        (20, 9,
         "Invalid update version 20 for feature metadata.version. The controller does not "
         "support the given upgrade type."),
        (20, UPGRADE,
         "Invalid update version 20 for feature metadata.version. Can't downgrade the version of "
         "this feature without setting the upgrade type to either safe or unsafe downgrade."),
    ],
)  # fmt: skip
def test_metadata_version_can_be_upgraded_and_safely_downgraded(
    level: int, kind: int, why: str | None
) -> None:
    """KIP-778: 3.7-IV2 is the last level that changed the metadata before 3.9."""
    assert why_not(Cluster(), METADATA, level, kind) == why


def test_a_downgrade_request_cannot_upgrade() -> None:
    """FeatureControlManager.updateFeature."""
    assert (
        why_not(Cluster(19), METADATA, 20, SAFE_DOWNGRADE)
        == f"Invalid update version 20 for feature {METADATA}. Can't downgrade to a newer version."
    )


@pytest.mark.parametrize(
    ("cluster", "why"),
    [
        (
            Cluster(19).with_broker(1, metadata_version=(1, 19)),
            "Broker 1 only supports versions 1-19",
        ),
        (Cluster(19).with_broker(1, metadata_version=(20, 20)).with_broker(2), None),
        (Cluster(19).with_broker(1, other=(1, 1)), "Broker 1 does not support this feature."),
        (Cluster(19).with_controller(102, 1, 19), "Controller 102 only supports versions 1-19"),
        (Cluster(19).with_controller(101, 1, 5), None),
        (
            Cluster(19, quorum_ids=(101, 102)),
            "controller 102 has not registered, and may not support this feature",
        ),
        (Cluster(19, quorum_ids=(101, 102)).with_controller(102), None),
        (Cluster(14, quorum_ids=(101, 102)), None),
    ],
)
def test_every_node_must_support_the_level(cluster: Cluster, why: str | None) -> None:
    """Controllers are checked since they register, with 3.7-IV0."""
    expected = None if why is None else f"Invalid update version 20 for feature {METADATA}. {why}"
    assert why_not(cluster, METADATA, 20, UPGRADE) == expected


def test_levels_cannot_change_during_a_zookeeper_migration() -> None:
    """KIP-866."""
    cluster = Cluster(20)
    cluster.write(ZkMigrationStateRecord(zk_migration_state=MIGRATION))
    assert why_not(cluster, METADATA, 21, UPGRADE) == (
        "Invalid metadata.version 21. Unable to modify metadata.version while a ZK migration "
        "is in progress."
    )


def test_before_4_0_each_feature_of_a_request_is_updated_independently() -> None:
    """Results by name; if a feature is named twice the last row counts."""
    cluster = Cluster(20)
    asked = request(
        ("foo", 1, UPGRADE), (METADATA, 19, UPGRADE), (METADATA, 21, UPGRADE), ("bar", 2, UPGRADE)
    )
    results = cluster.carry_out(decide_update_features(cluster.state.feature_view(), asked, 1))
    assert [(name, refusal is None) for name, refusal in results] == [
        ("bar", False),
        ("foo", False),
        (METADATA, True),
    ]
    assert cluster.log[1:] == [FeatureLevelRecord(name=METADATA, feature_level=21)]
    assert cluster.state.features.metadata_level.level == 21


def test_since_4_0_all_features_of_a_request_are_updated_or_none() -> None:
    """KIP-1022."""
    cluster = Cluster(20, updates_features_atomically=True)
    decided = decide_update_features(
        cluster.state.feature_view(), request((METADATA, 21, UPGRADE), ("foo", 1, UPGRADE)), 2
    )
    why = (
        "The update failed for all features since the following feature had an error: Invalid "
        "update version 1 for feature foo. "
    )
    assert decided == Refusal(ErrorCode.INVALID_UPDATE_VERSION) and isinstance(decided, Refusal)
    assert decided.why == why + "Local controller 101 does not support this feature."


@pytest.mark.parametrize(
    ("level", "updates", "why"),
    [
        (
            3,
            (("transaction.version", 1, UPGRADE),),
            (
                "transaction.version could not be set to 1 because it depends on "
                "metadata.version=4 (3.3-IV0)"
            ),
        ),
        (
            20,
            (("kraft.version", 1, UPGRADE),),
            "kraft.version could not be set to 1 because it depends on metadata.version level 21",
        ),
        (20, (("kraft.version", 1, UPGRADE), (METADATA, 21, UPGRADE)), None),
        (4, (("transaction.version", 2, UPGRADE),), None),
        (1, (("transaction.version", 0, UPGRADE),), None),
    ],
)
def test_since_4_0_a_level_may_require_a_metadata_version(
    level: int, updates: tuple[tuple[str, int, int], ...], why: str | None
) -> None:
    """Features.validateVersion checks the resulting levels, not the current ones."""
    cluster = Cluster(level, updates_features_atomically=True, supported_features=WITH_TRANSACTIONS)
    decided = decide_update_features(cluster.state.feature_view(), request(*updates), 2)
    assert (decided.why.rpartition(". ")[2] if isinstance(decided, Refusal) else None) == why


@pytest.mark.parametrize(("is_atomic", "is_done"), [(False, False), (True, True)])
def test_only_since_4_0_a_version_0_request_can_downgrade(is_atomic: bool, is_done: bool) -> None:
    """allow_downgrade is ignored before."""
    cluster = Cluster(21, updates_features_atomically=is_atomic)
    asked = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=METADATA, max_version_level=20, allow_downgrade=True)
        ]
    )
    decided = decide_update_features(cluster.state.feature_view(), asked, 0)
    assert (isinstance(decided, Decision) and bool(decided.records)) is is_done


def test_validate_only_changes_nothing() -> None:
    """validate_only, v1."""
    decided = decide_update_features(
        Cluster(20).state.feature_view(), request((METADATA, 21, UPGRADE), validate_only=True), 1
    )
    assert isinstance(decided, Decision) and (decided.records, decided.result) == (
        [],
        [(METADATA, None)],
    )


def test_record_versions_follow_the_level() -> None:
    """Nodes of the downgraded level can read what the cluster writes."""
    cluster = Cluster(21).with_broker(1)
    register = cluster.log[-1]
    assert cluster.state.record_version(register) == 3
    cluster.write(FeatureLevelRecord(name=METADATA, feature_level=8))
    assert cluster.state.record_version(register) == 2
