"""The finalized feature levels of the cluster, and the records that a new active controller writes
on activation: the bootstrap of an empty log, the end of an open metadata transaction or of a
migration.

Source: KIP-584, KIP-778, org.apache.kafka.controller.{FeatureControlManager,
ActivationRecordsGenerator}, BootstrapMetadata.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kraftsim.core.timeline import Journal, TimelineDict
from kraftsim.metadata.rules_versions import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    FEATURE,
    METADATA_VERSIONS,
    MetadataLevel,
    default_levels,
)
from protocol.config_resources import ConfigResourceType
from protocol.metadata.controller import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from protocol.metadata.settings import (
    MIGRATION,
    NONE,
    POST_MIGRATION,
    PRE_MIGRATION,
    ConfigRecord,
    FeatureLevelRecord,
    ZkMigrationStateRecord,
)
from protocol.schema import Message

BOOTSTRAP: Final = "Bootstrap records"
FAILOVER: Final = "Controller failover"
NOTHING_ELSE: Final[Mapping[str, tuple[int, int]]] = {}


# --------------------------------------------------------------------------------------------------
# Records on activation


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """The bootstrap metadata of a cluster: its first records, and the metadata.version among
    them.
    """

    records: tuple[Message, ...]
    metadata_version: int
    refusal: str | None = None
    """The error if no log can start with these records."""


def bootstrap_at(
    metadata_version: int, supported: Mapping[str, tuple[int, int]] = NOTHING_ELSE
) -> Bootstrap:
    """Return the bootstrap metadata for a metadata.version: this level, and the default levels of
    the `supported` features.
    """
    levels = {FEATURE: metadata_version, **default_levels(metadata_version, supported)}
    records = tuple(
        FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()
    )
    return Bootstrap(records=records, metadata_version=metadata_version)


class MigrationStatePolicy(Enum):
    """The levels at which a new log records that the cluster was created in KRaft mode."""

    WHERE_IT_CAN_BE = "from 3.4-IV0 on"
    IN_TRANSACTIONS = "from 3.6-IV1 on"
    """In releases that migrate only with metadata transactions."""
    NEVER = "at no level"


class ActivationRefused(Exception):
    """The controller cannot become active with this log and configuration: it shuts down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationBehavior:
    """How a release starts and completes a migration from ZooKeeper.
    Source: KIP-866, KAFKA-14805, ActivationRecordsGenerator.

    `is_enabled`: zookeeper.metadata.migration.enable of this controller. `state_before`: the
    recorded state until all metadata is copied.
    """

    is_enabled: bool = False
    is_known: bool = True
    """Whether the release can complete a migration that an older one started (not since 4.0)."""
    needs_transactions: bool = True
    """Whether the copy has to be one metadata transaction (since 3.9)."""
    state_before: int = PRE_MIGRATION
    """3.4 uses another number, which later releases read as a completed copy."""
    finishes: bool = True
    """Whether a controller without the setting completes the migration (not in 3.4)."""


NO_MIGRATION: Final = MigrationBehavior()


def bootstrap_records(
    bootstrap: Bootstrap,
    migration_state_policy: MigrationStatePolicy = MigrationStatePolicy.IN_TRANSACTIONS,
    *,
    min_in_sync_replicas: str = "1",
    migration: MigrationBehavior = NO_MIGRATION,
) -> list[Message]:
    """Return the first records of an empty log: the bootstrap metadata and, depending on the
    release, the ZkMigrationStateRecord.

    With eligible leader replicas the static min.insync.replicas becomes the dynamic cluster default
    (KIP-966). Raises ActivationRefused if a migration is enabled and the metadata.version does not
    support it.
    """
    level = MetadataLevel(bootstrap.metadata_version)
    if migration.is_enabled and not (
        level.has_transactions if migration.needs_transactions else level.has_migration_state
    ):
        name = METADATA_VERSIONS[level.level].name
        raise ActivationRefused(
            f"The bootstrap metadata.version {name} does not support ZK migrations. Cannot "
            "continue with ZK migrations enabled."
        )
    records = list(bootstrap.records)
    says_past = {
        MigrationStatePolicy.WHERE_IT_CAN_BE: level.has_migration_state,
        MigrationStatePolicy.IN_TRANSACTIONS: level.has_transactions,
        MigrationStatePolicy.NEVER: False,
    }
    if any(
        isinstance(record, FeatureLevelRecord)
        and record.name == ELIGIBLE_LEADER_REPLICAS_VERSION
        and record.feature_level
        for record in records
    ):
        broker = int(ConfigResourceType.BROKER)
        records.append(
            ConfigRecord(
                resource_type=broker,
                resource_name="",
                name="min.insync.replicas",
                value=min_in_sync_replicas,
            )
        )
    if migration.is_enabled:
        records.append(ZkMigrationStateRecord(zk_migration_state=migration.state_before))
    elif says_past[migration_state_policy]:
        records.append(ZkMigrationStateRecord(zk_migration_state=NONE))
    return (
        [BeginTransactionRecord(name=BOOTSTRAP), *records, EndTransactionRecord()]
        if level.has_transactions
        else records
    )


def takeover_records(
    *,
    is_in_transaction: bool,
    migration_state: int = NONE,
    level: MetadataLevel | None = None,
    migration: MigrationBehavior = NO_MIGRATION,
) -> list[Message]:
    """Return the records that a new active controller adds to a non-empty log: the end of an open
    metadata transaction, or of a migration.

    Raises ActivationRefused if the log and the configuration contradict each other.
    """
    records: list[Message] = [AbortTransactionRecord(reason=FAILOVER)] if is_in_transaction else []
    if not migration.is_known and migration_state in (PRE_MIGRATION, MIGRATION):
        raise ActivationRefused(
            "The metadata log is in the middle of a migration from ZooKeeper, which this release "
            "does not support."
        )
    if level is not None and not level.has_migration_state:
        if migration.is_enabled:
            name = METADATA_VERSIONS[level.level].name
            raise ActivationRefused(
                "Should not have ZK migrations enabled on a cluster running metadata.version "
                f"{name}"
            )
        return records
    if migration_state == NONE and migration.is_enabled:
        raise ActivationRefused(
            "Should not have ZK migrations enabled on a cluster that was created in KRaft mode."
        )
    if migration_state == MIGRATION and migration.finishes and not migration.is_enabled:
        records.append(ZkMigrationStateRecord(zk_migration_state=POST_MIGRATION))
    return records


# --------------------------------------------------------------------------------------------------
# The finalized levels

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
