"""UpdateFeatures: a level can be finalized if every node supports it; downgrades must be lossless.

Up to 3.9 each feature of a request succeeds or fails by itself; since 4.0 a request is all or
nothing, and levels may depend on other features.
Source: KIP-584, KIP-778, KIP-1022, org.apache.kafka.controller.{FeatureControlManager,
QuorumFeatures}.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from kraftsim.core.decision import Decision, Refusal, Steps, ends_step, whole
from kraftsim.metadata.events import FeatureLevelChanged
from kraftsim.metadata.rules_brokers import ClusterControl
from kraftsim.metadata.rules_configs import ALL_BROKERS, MIN_IN_SYNC_CONFIG, ConfigControl
from kraftsim.metadata.rules_described_configs import ControllerNode
from kraftsim.metadata.rules_features import NO_LEVEL, FeatureControl
from kraftsim.metadata.rules_registries import Registries
from kraftsim.metadata.rules_versions import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    FEATURE,
    FIRST_WITH_FEATURE_RECORDS,
    KRAFT_VERSION,
    METADATA_VERSIONS,
    is_lossless,
    needs_of,
)
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.messages.k57_update_features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from protocol.metadata.settings import MIGRATION, PRE_MIGRATION, ConfigRecord, FeatureLevelRecord

Results: TypeAlias = list[tuple[str, Refusal | None]]
DISABLED: Final = (NO_LEVEL, NO_LEVEL)
IN_PROGRESS: Final = (PRE_MIGRATION, MIGRATION)
FIRST_WITH_DYNAMIC_QUORUMS: Final = 21
DOWNWARDS: Final = (SAFE_DOWNGRADE, UNSAFE_DOWNGRADE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureView:
    """The state that feature updates are validated against."""

    node: ControllerNode
    features: FeatureControl
    cluster: ClusterControl
    configs: ConfigControl
    registries: Registries

    def level_of(self, feature: str) -> int:
        """Return the finalized level of a feature."""
        return self.features.finalized.get(feature, NO_LEVEL)

    def proposed(self, updates: Mapping[str, FeatureUpdateKey]) -> dict[str, int]:
        """Return the levels after the updates."""
        return {
            **self.features.finalized,
            **{name: update.max_version_level for name, update in updates.items()},
        }

    def other_controllers(self) -> Iterator[tuple[int, dict[str, tuple[int, int]]]]:
        """Yield (id, supported features) of every other registered controller."""
        for record in self.registries.controllers.records():
            if record.controller_id != self.node.node_id:
                ranges = {
                    feature.name: (feature.min_supported_version, feature.max_supported_version)
                    for feature in record.features
                }
                yield record.controller_id, ranges


def decide_update_features(
    view: FeatureView, request: UpdateFeaturesRequest, version: int
) -> Decision[Results] | Refusal:
    """Update feature levels; one result per feature, by name.

    If they are atomic (since 4.0), the request fails with the first error.
    """
    return whole(update_features_steps(view, request, version))


def update_features_steps(
    view: FeatureView, request: UpdateFeaturesRequest, version: int
) -> Steps[Decision[Results] | Refusal]:
    """Like `decide_update_features`, in steps."""
    updates = {update.feature: update for update in request.feature_updates}
    results: Results = []
    for index, name in enumerate(sorted(updates)):
        if ends_step(index):
            yield
        results.append((name, _refuse(view, updates[name], version, updates)))
    if view.node.updates_features_atomically:
        refusal = next((refusal for _, refusal in results if refusal is not None), None)
        if refusal is not None:
            return Refusal(
                refusal.error,
                "The update failed for all features since the following feature had an error: "
                f"{refusal.why}",
            )
    if request.validate_only:
        return Decision([], results)
    levels = [
        FeatureLevelRecord(name=name, feature_level=updates[name].max_version_level)
        for name, refusal in results
        if refusal is None
    ]
    facts = [
        FeatureLevelChanged(
            feature=record.name,
            level=record.feature_level,
            previous_level=view.level_of(record.name),
        )
        for record in levels
    ]
    begins_elr = any(
        record.name == ELIGIBLE_LEADER_REPLICAS_VERSION and record.feature_level
        for record in levels
    )
    return Decision(
        [*(_min_in_sync_records(view.configs) if begins_elr else ()), *levels],
        results,
        tuple(facts),
    )


def _min_in_sync_records(configs: ConfigControl) -> Iterator[ConfigRecord]:
    """Yield the records that make min.insync.replicas the same on all brokers: leader eligibility
    depends on it from now on (KIP-966).
    """
    broker = int(ConfigResourceType.BROKER)
    if MIN_IN_SYNC_CONFIG not in configs.configs_of(broker, ALL_BROKERS):
        yield ConfigRecord(
            resource_type=broker,
            resource_name=ALL_BROKERS,
            name=MIN_IN_SYNC_CONFIG,
            value=configs.static_min_in_sync_replicas(),
        )
    for resource_type, name in configs.resources():
        if (
            resource_type == broker
            and name
            and MIN_IN_SYNC_CONFIG in configs.configs_of(broker, name)
        ):
            yield ConfigRecord(
                resource_type=broker, resource_name=name, name=MIN_IN_SYNC_CONFIG, value=None
            )


def _refuse(
    view: FeatureView,
    update: FeatureUpdateKey,
    version: int,
    updates: Mapping[str, FeatureUpdateKey],
) -> Refusal | None:
    """Return why a level of a feature is rejected, or None."""
    name, level, kind = update.feature, update.max_version_level, _kind(view, update, version)
    current = view.level_of(name)
    why: str | None = None
    if kind not in (UPGRADE, *DOWNWARDS):
        why = "The controller does not support the given upgrade type."
    elif level < 0:
        why = "A feature version cannot be less than 0."
    else:
        why = _why_unsupported(view, name, level)
    if why is None and level < current and kind not in DOWNWARDS:
        why = (
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    if why is None and level > current and kind in DOWNWARDS:
        why = "Can't downgrade to a newer version."
    if why is None and name == FEATURE:
        return _refuse_metadata_version(view, current, level, is_unsafe=kind == UNSAFE_DOWNGRADE)
    if why is None and view.node.updates_features_atomically:
        why = _why_dependent(name, level, view.proposed(updates))
    return (
        None
        if why is None
        else Refusal(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Invalid update version {level} for feature {name}. {why}",
        )
    )


def _kind(view: FeatureView, update: FeatureUpdateKey, version: int) -> int:
    """Return the upgrade type.

    Version 0 of the request has only an allow-downgrade flag, which 3.9 ignores.
    """
    if version > 0:
        return update.upgrade_type
    return (
        SAFE_DOWNGRADE
        if update.allow_downgrade and view.node.updates_features_atomically
        else UPGRADE
    )


def _why_unsupported(view: FeatureView, name: str, level: int) -> str | None:
    """Return which node does not support a level of a feature, or None.

    Only registered controllers are checked.
    """
    nodes = [
        (f"Local controller {view.node.node_id}", view.node.supported_features.get(name, DISABLED))
    ]
    for broker in view.cluster.brokers():
        ranges = {
            feature.name: (feature.first_level, feature.last_level) for feature in broker.features
        }
        nodes.append((f"Broker {broker.broker_id}", ranges.get(name, DISABLED)))
    are_registered = view.features.metadata_level.has_controller_registrations
    others = dict(view.other_controllers()) if are_registered else {}
    nodes += [
        (f"Controller {node_id}", ranges.get(name, DISABLED)) for node_id, ranges in others.items()
    ]
    for node_name, (lowest, highest) in nodes:
        if not lowest <= level <= highest:
            return (
                f"{node_name} does not support this feature."
                if highest == NO_LEVEL
                else f"{node_name} only supports versions {_range(lowest, highest)}"
            )
    missing = [
        node_id
        for node_id in view.node.quorum_ids
        if node_id != view.node.node_id and node_id not in others
    ]
    if are_registered and missing:
        return f"controller {missing[0]} has not registered, and may not support this feature"
    return None


def _refuse_metadata_version(
    view: FeatureView, current: int, level: int, *, is_unsafe: bool
) -> Refusal | None:
    why: str | None = None
    if level not in METADATA_VERSIONS:
        why = "Unknown metadata.version."
    elif view.registries.migration_state.zk_migration_state in IN_PROGRESS:
        why = "Unable to modify metadata.version while a ZK migration is in progress."
    elif level < FIRST_WITH_FEATURE_RECORDS:
        why = (
            "Unable to set a metadata.version less than "
            f"{METADATA_VERSIONS[FIRST_WITH_FEATURE_RECORDS].name}"
        )
    elif level < current and not is_lossless(current, level):
        why = (
            "Unsafe metadata downgrade is not supported in this version."
            if is_unsafe
            else (
                "Refusing to perform the requested downgrade because it might delete metadata "
                "information."
            )
        )
    if why is None:
        return None
    is_named = view.node.names_downgrades and level < current
    said = (
        f"Unsupported metadata.version downgrade from {current} to {level}."
        if is_named
        else f"Invalid metadata.version {level}."
    )
    return Refusal(ErrorCode.INVALID_UPDATE_VERSION, f"{said} {why}")


def _why_dependent(name: str, level: int, proposed: Mapping[str, int]) -> str | None:
    """Return which dependency of a level is not satisfied, or None."""
    if level == NO_LEVEL:
        return None
    said = f"{name} could not be set to {level} because it depends on {FEATURE}"
    if proposed[FEATURE] < FIRST_WITH_FEATURE_RECORDS:
        return (
            f"{said}={FIRST_WITH_FEATURE_RECORDS} "
            f"({METADATA_VERSIONS[FIRST_WITH_FEATURE_RECORDS].name})"
        )
    short = next(
        (
            (needed, least)
            for needed, least in needs_of(name, level).items()
            if proposed.get(needed, NO_LEVEL) < least
        ),
        None,
    )
    if short is not None:
        return (
            f"{name} could not be set to {level} because it depends on {short[0]} level {short[1]}"
        )
    if name == KRAFT_VERSION and proposed[FEATURE] < FIRST_WITH_DYNAMIC_QUORUMS:
        return f"{said} level {FIRST_WITH_DYNAMIC_QUORUMS}"
    return None


def _range(lowest: int, highest: int) -> str:
    return str(lowest) if lowest == highest else f"{lowest}-{highest}"
