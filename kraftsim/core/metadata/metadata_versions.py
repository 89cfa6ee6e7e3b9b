"""The metadata.version levels by name, and which of them changed the metadata format.

A downgrade is lossless only if no level in between changed the format.
Source: org.apache.kafka.server.common.MetadataVersion (3.9, 4.4).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final


@dataclass(frozen=True, slots=True)
class MetadataVersion:
    """`changes_metadata`: from this level on the log may have records that older nodes cannot
    read.
    """

    name: str
    changes_metadata: bool


METADATA_VERSIONS: Final[Mapping[int, MetadataVersion]] = {
    1: MetadataVersion("3.0-IV1", True),
    2: MetadataVersion("3.1-IV0", False),
    3: MetadataVersion("3.2-IV0", True),
    4: MetadataVersion("3.3-IV0", False),
    5: MetadataVersion("3.3-IV1", True),
    6: MetadataVersion("3.3-IV2", True),
    7: MetadataVersion("3.3-IV3", True),
    8: MetadataVersion("3.4-IV0", True),
    9: MetadataVersion("3.5-IV0", False),
    10: MetadataVersion("3.5-IV1", False),
    11: MetadataVersion("3.5-IV2", True),
    12: MetadataVersion("3.6-IV0", False),
    13: MetadataVersion("3.6-IV1", True),
    14: MetadataVersion("3.6-IV2", True),
    15: MetadataVersion("3.7-IV0", True),
    16: MetadataVersion("3.7-IV1", False),
    17: MetadataVersion("3.7-IV2", True),
    18: MetadataVersion("3.7-IV3", False),
    19: MetadataVersion("3.7-IV4", False),
    20: MetadataVersion("3.8-IV0", False),
    21: MetadataVersion("3.9-IV0", False),
    22: MetadataVersion("4.0-IV0", False),
    23: MetadataVersion("4.0-IV1", True),
    24: MetadataVersion("4.0-IV2", False),
    25: MetadataVersion("4.0-IV3", False),
    26: MetadataVersion("4.1-IV0", False),
    27: MetadataVersion("4.1-IV1", False),
    28: MetadataVersion("4.2-IV0", False),
    29: MetadataVersion("4.2-IV1", False),
    30: MetadataVersion("4.3-IV0", True),
    31: MetadataVersion("4.4-IV0", False),
    32: MetadataVersion("4.4-IV1", True),
    33: MetadataVersion("4.4-IV2", True),
}
FIRST_WITH_FEATURE_RECORDS: Final = 4
"""3.3-IV0, the lowest level that can be set: the first with a FeatureLevelRecord."""
BEFORE_KRAFT: Final = (
    "0.8.0 0.8.1 0.8.2 0.9.0 0.10.0-IV0 0.10.0-IV1 0.10.1-IV0 0.10.1-IV1 0.10.1-IV2 0.10.2-IV0 "
    "0.11.0-IV0 0.11.0-IV1 0.11.0-IV2 1.0-IV0 1.1-IV0 2.0-IV0 2.0-IV1 2.1-IV0 2.1-IV1 2.1-IV2 "
    "2.2-IV0 2.2-IV1 2.3-IV0 2.3-IV1 2.4-IV0 2.4-IV1 2.5-IV0 2.6-IV0 2.7-IV0 2.7-IV1 2.7-IV2 "
    "2.8-IV0 2.8-IV1 3.0-IV0"
)
"""Versions of ZooKeeper mode, which have no level."""
LAST_OF_3_9: Final = 23


def is_lossless(current_level: int, lower_level: int) -> bool:
    """Return whether a downgrade is lossless: whether no level above the lower one changed the
    metadata.
    """
    return not any(
        version.changes_metadata
        for level, version in METADATA_VERSIONS.items()
        if lower_level < level <= current_level
    )


@cache
def known_version_names() -> frozenset[str]:
    """Return the names that 3.9 accepts as message format: full ones, and short ones for the last
    level of a release.
    """
    full = [
        *BEFORE_KRAFT.split(),
        *(version.name for level, version in METADATA_VERSIONS.items() if level <= LAST_OF_3_9),
    ]
    return frozenset([*full, *(name.partition("-")[0] for name in full)])
