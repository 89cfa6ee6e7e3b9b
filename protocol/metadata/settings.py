"""Records of what operators set for the whole cluster: configurations, client quotas, feature
levels, and how far the migration from ZooKeeper has come.

Source: KIP-546, KIP-584, KIP-631, KIP-866; the JSON definitions named at each record.
"""

from protocol.schema import array, boolean, float64, int8, int16, message, string, structure

# --------------------------------------------------------------------------------------------------
# ConfigRecord (4): one configuration of a topic, a broker, or another resource is set or deleted.
#
# Source: KIP-631, ConfigRecord.json.

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32


@message(key=4, kind="metadata", versions="0", flexible="0+")
class ConfigRecord:
    """A null value deletes the configuration; the resource name "" of a broker means all
    brokers.
    """

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+")


# --------------------------------------------------------------------------------------------------
# FeatureLevelRecord (12): the finalized level of a feature, such as metadata.version, for the
# whole cluster.
#
# Up to 3.2 the same number and version had other fields (a lowest and a highest level); such logs
# were never used in production.
# Source: KIP-584, KIP-778; FeatureLevelRecord.json.

METADATA_VERSION_FEATURE = "metadata.version"


@message(key=12, kind="metadata", versions="0", flexible="0+")
class FeatureLevelRecord:
    """Level 0 removes the feature."""

    name: str = string()
    feature_level: int = int16()


# --------------------------------------------------------------------------------------------------
# ClientQuotaRecord (14): a quota of a user, a client id, or an address is set or deleted.
#
# Source: KIP-546, KIP-631, ClientQuotaRecord.json.


@structure
class EntityData:
    """A part of the quota's entity; null means the default of that type."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@message(key=14, kind="metadata", versions="0", flexible="0+")
class ClientQuotaRecord:
    """One key of one entity."""

    entity: list[EntityData] = array(EntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


# --------------------------------------------------------------------------------------------------
# ZkMigrationStateRecord (21): the state of the migration from ZooKeeper (3.4).
#
# Source: KIP-866, KAFKA-14805, ZkMigrationRecord.json.

NONE = 0
# 3.4 calls this PRE_MIGRATION and never advances to 2, so that a cluster of that release is treated
# as migrated
MIGRATION = 1
PRE_MIGRATION = 2
POST_MIGRATION = 3


@message(key=21, kind="metadata", versions="0", flexible="0+")
class ZkMigrationStateRecord:
    """A cluster that never had ZooKeeper starts with NONE."""

    zk_migration_state: int = int8()
