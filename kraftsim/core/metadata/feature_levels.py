"""The features besides metadata.version: the dependencies of each level, and the default levels of
a new cluster.

Source: KIP-584, KIP-1022, org.apache.kafka.server.common.{Feature, TransactionVersion,
GroupVersion, EligibleLeaderReplicasVersion, ShareVersion, StreamsVersion} (4.4), `kafka-storage
version-mapping` and `feature-dependencies`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kraftsim.core.metadata.metadata_level import FEATURE

TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevel:
    """One level of a feature.

    It is the default of new clusters since a metadata.version (`since`); `needs`: feature -> lowest
    required level.
    """

    level: int
    since: int
    needs: Mapping[str, int] = field(default_factory=dict)


FEATURE_LEVELS: Final[Mapping[str, tuple[FeatureLevel, ...]]] = {
    ELIGIBLE_LEADER_REPLICAS_VERSION: (FeatureLevel(level=1, since=26, needs={FEATURE: 23}),),
    GROUP_VERSION: (FeatureLevel(level=1, since=22),),
    SHARE_VERSION: (FeatureLevel(level=1, since=28), FeatureLevel(level=2, since=31)),
    STREAMS_VERSION: (FeatureLevel(level=1, since=29),),
    TRANSACTION_VERSION: (FeatureLevel(level=1, since=24), FeatureLevel(level=2, since=24)),
}
"""Level 0 is the absence of a feature. kraft.version is not here: it is stored in the quorum state,
not in a metadata record.
"""


def default_levels(
    metadata_version: int, supported: Mapping[str, tuple[int, int]]
) -> dict[str, int]:
    """Return feature -> default level for a metadata.version, sorted by name; those with level 0
    are left out.
    """
    found = {}
    for name, levels in FEATURE_LEVELS.items():
        _, highest = supported.get(name, (0, 0))
        had = [
            each.level
            for each in levels
            if each.since <= metadata_version and each.level <= highest
        ]
        if had:
            found[name] = max(had)
    return found


def needs_of(name: str, level: int) -> Mapping[str, int]:
    """Return feature -> lowest level that a level of a feature depends on."""
    return next((each.needs for each in FEATURE_LEVELS.get(name, ()) if each.level == level), {})
