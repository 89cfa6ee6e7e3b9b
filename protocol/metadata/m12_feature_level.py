"""FeatureLevelRecord (12): the finalized level of a feature, such as metadata.version, for the
whole cluster.

Up to 3.2 the same number and version had other fields (a lowest and a highest level); such logs
were never used in production.
Source: KIP-584, KIP-778; FeatureLevelRecord.json.
"""

from protocol.schema import int16, message, string

METADATA_VERSION_FEATURE = "metadata.version"


@message(key=12, kind="metadata", versions="0", flexible="0+")
class FeatureLevelRecord:
    """Level 0 removes the feature."""

    name: str = string()
    feature_level: int = int16()
