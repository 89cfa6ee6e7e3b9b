"""The finalized feature levels as a broker knows them; it reports them to clients and is governed
by them.

They follow the metadata log, so they can change while the broker runs.
Source: KIP-584, org.apache.kafka.metadata.MetadataCache.features.
"""

from collections.abc import Callable

from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.metadata.rules_versions import KRAFT_VERSION
from kraftsim.server.api_offer import FinalizedFeatures


class ClusterFeatures:
    """`kraft_version` returns the level of kraft.version, which is in the voter set and not in a
    FeatureLevelRecord.
    """

    def __init__(
        self, image: Callable[[], MetadataImage], kraft_version: Callable[[], int]
    ) -> None:
        self._image = image
        self._kraft_version = kraft_version

    def level(self, name: str) -> int:
        """Return the finalized level of a feature such as transaction.version; 0 where it has
        none.
        """
        return self._kraft_version() if name == KRAFT_VERSION else self._image().level_of(name)

    def finalized(self) -> FinalizedFeatures:
        """Return all levels and the offset of the last applied metadata record; empty before any
        record is applied.
        """
        image = self._image()
        levels, kraft_version = image.finalized_features, self._kraft_version()
        if levels and kraft_version:
            levels = {**levels, KRAFT_VERSION: kraft_version}
        return FinalizedFeatures(levels, image.highest_offset)
