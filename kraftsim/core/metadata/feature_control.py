"""The finalized feature levels of the cluster.

Source: KIP-584, KIP-778, org.apache.kafka.controller.FeatureControlManager.
"""

from collections.abc import Mapping
from typing import Final

from kraftsim.core.metadata.feature_levels import ELIGIBLE_LEADER_REPLICAS_VERSION
from kraftsim.core.metadata.metadata_level import FEATURE, MetadataLevel
from kraftsim.core.timeline import Journal, TimelineDict
from protocol.metadata.m12_feature_level import FeatureLevelRecord

NO_LEVEL: Final = 0


class FeatureControl:
    """feature -> level; a feature at level 0 is absent.

    `default_level` of metadata.version applies until the log has one.
    """

    def __init__(self, journal: Journal, default_level: int) -> None:
        self._levels: TimelineDict[str, int] = TimelineDict(journal)
        self._default_level = default_level

    @property
    def metadata_level(self) -> MetadataLevel:
        """The finalized level of metadata.version."""
        level = self._levels.get(FEATURE)
        return MetadataLevel(self._default_level if level is None else level)

    def level_of(self, feature: str) -> int:
        """Return the finalized level of a feature; 0 if it is not finalized."""
        return (
            self.metadata_level.level
            if feature == FEATURE
            else self._levels.get(feature) or NO_LEVEL
        )

    @property
    def has_eligible_leaders(self) -> bool:
        """Whether eligible leader replicas are enabled (KIP-966)."""
        return self.level_of(ELIGIBLE_LEADER_REPLICAS_VERSION) > NO_LEVEL

    @property
    def finalized(self) -> Mapping[str, int]:
        """Every finalized feature, metadata.version among them, sorted by name."""
        levels = dict(self._levels.items())
        levels.setdefault(FEATURE, self._default_level)
        return dict(sorted(levels.items()))

    def replay(self, record: FeatureLevelRecord) -> None:
        """Replay a level."""
        if record.feature_level != NO_LEVEL:
            self._levels[record.name] = record.feature_level
        elif record.name in self._levels:
            del self._levels[record.name]
