"""The first records that an active controller writes.

Source: org.apache.kafka.controller.ActivationRecordsGenerator, BootstrapMetadata.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kraftsim.core.metadata.feature_levels import ELIGIBLE_LEADER_REPLICAS_VERSION, default_levels
from kraftsim.core.metadata.metadata_level import FEATURE, MetadataLevel
from kraftsim.core.metadata.metadata_versions import METADATA_VERSIONS
from protocol.config_resources import ConfigResourceType
from protocol.metadata.m04_config import ConfigRecord
from protocol.metadata.m12_feature_level import FeatureLevelRecord
from protocol.metadata.m21_zk_migration_state import MIGRATION, NONE, POST_MIGRATION, PRE_MIGRATION, ZkMigrationStateRecord
from protocol.metadata.m23_begin_transaction import BeginTransactionRecord
from protocol.metadata.m24_end_transaction import EndTransactionRecord
from protocol.metadata.m25_abort_transaction import AbortTransactionRecord
from protocol.schema import Message

BOOTSTRAP: Final = "Bootstrap records"
FAILOVER: Final = "Controller failover"
NOTHING_ELSE: Final[Mapping[str, tuple[int, int]]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """What a cluster is given to begin with: its first records, and the level of metadata.version among them."""

    records: tuple[Message, ...]
    metadata_version: int
    refusal: str | None = None
    """Why no log can begin so."""


def bootstrap_at(metadata_version: int, supported: Mapping[str, tuple[int, int]] = NOTHING_ELSE) -> Bootstrap:
    """Return what a cluster begins with that is told nothing but its level: that, and what goes with it of the features that are `supported`."""
    levels = {FEATURE: metadata_version, **default_levels(metadata_version, supported)}
    records = tuple(FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items())
    return Bootstrap(records=records, metadata_version=metadata_version)


class PastTold(Enum):
    """Where a new log says that there never was a ZooKeeper."""

    WHERE_IT_CAN_BE = "from 3.4-IV0 on"
    IN_TRANSACTIONS = "from 3.6-IV1 on"
    """By releases that migrate no cluster without metadata transactions."""
    NEVER = "at no level"


class ActivationRefused(Exception):
    """A controller cannot lead with this log and these properties: it goes down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationManners:
    """How a release begins and ends the migration of a cluster from ZooKeeper.   Source: KIP-866, KAFKA-14805, ActivationRecordsGenerator.

    `is_enabled`: zookeeper.metadata.migration.enable of this controller. `state_before` is what the log says until all is copied.
    """

    is_enabled: bool = False
    is_known: bool = True
    """Whether the release can finish what an older one began (not since 4.0)."""
    needs_transactions: bool = True
    """Whether a copy must stand or fall as a whole (since 3.9)."""
    state_before: int = PRE_MIGRATION
    """3.4 has another number for it, which later releases take for a copy that is done."""
    finishes: bool = True
    """Whether a controller without the setting ends the migration (not in 3.4)."""


NO_MIGRATION: Final = MigrationManners()


def bootstrap_records(
    bootstrap: Bootstrap,
    past_told: PastTold = PastTold.IN_TRANSACTIONS,
    *,
    min_in_sync_replicas: str = "1",
    migration: MigrationManners = NO_MIGRATION,
) -> list[Message]:
    """Return what an empty log begins with: what the cluster is given, and, where the release says so, that there never was a ZooKeeper, or is one.

    Where eligible leaders are kept, the properties' min.insync.replicas is that of the whole cluster from the beginning (KIP-966).
    Raises ActivationRefused where a migration is wanted and the level is too low for one.
    """
    level = MetadataLevel(bootstrap.metadata_version)
    if migration.is_enabled and not (level.has_transactions if migration.needs_transactions else level.has_migration_state):
        name = METADATA_VERSIONS[level.level].name
        raise ActivationRefused(f"The bootstrap metadata.version {name} does not support ZK migrations. Cannot continue with ZK migrations enabled.")
    records = list(bootstrap.records)
    says_past = {
        PastTold.WHERE_IT_CAN_BE: level.has_migration_state,
        PastTold.IN_TRANSACTIONS: level.has_transactions,
        PastTold.NEVER: False,
    }
    if any(isinstance(record, FeatureLevelRecord) and record.name == ELIGIBLE_LEADER_REPLICAS_VERSION and record.feature_level for record in records):
        broker = int(ConfigResourceType.BROKER)
        records.append(ConfigRecord(resource_type=broker, resource_name="", name="min.insync.replicas", value=min_in_sync_replicas))
    if migration.is_enabled:
        records.append(ZkMigrationStateRecord(zk_migration_state=migration.state_before))
    elif says_past[past_told]:
        records.append(ZkMigrationStateRecord(zk_migration_state=NONE))
    return [BeginTransactionRecord(name=BOOTSTRAP), *records, EndTransactionRecord()] if level.has_transactions else records


def takeover_records(
    *, is_in_transaction: bool, migration_state: int = NONE, level: MetadataLevel | None = None, migration: MigrationManners = NO_MIGRATION
) -> list[Message]:
    """Return what a log that is not empty needs from a new active controller: an end to what the one before left open, or to a migration.

    Raises ActivationRefused where the log and the properties do not go together.
    """
    records: list[Message] = [AbortTransactionRecord(reason=FAILOVER)] if is_in_transaction else []
    if not migration.is_known and migration_state in (PRE_MIGRATION, MIGRATION):
        raise ActivationRefused("The metadata log is in the middle of a migration from ZooKeeper, which this release does not know any more.")
    if level is not None and not level.has_migration_state:
        if migration.is_enabled:
            name = METADATA_VERSIONS[level.level].name
            raise ActivationRefused(f"Should not have ZK migrations enabled on a cluster running metadata.version {name}")
        return records
    if migration_state == NONE and migration.is_enabled:
        raise ActivationRefused("Should not have ZK migrations enabled on a cluster that was created in KRaft mode.")
    if migration_state == MIGRATION and migration.finishes and not migration.is_enabled:
        records.append(ZkMigrationStateRecord(zk_migration_state=POST_MIGRATION))
    return records
