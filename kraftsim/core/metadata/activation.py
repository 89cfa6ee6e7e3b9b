"""The first records that an active controller writes.

Source: org.apache.kafka.controller.ActivationRecordsGenerator, BootstrapMetadata.
"""

from dataclasses import dataclass
from typing import Final

from kraftsim.core.metadata.metadata_level import FEATURE, MetadataLevel
from protocol.metadata.m12_feature_level import FeatureLevelRecord
from protocol.metadata.m21_zk_migration_state import NONE, ZkMigrationStateRecord
from protocol.metadata.m23_begin_transaction import BeginTransactionRecord
from protocol.metadata.m24_end_transaction import EndTransactionRecord
from protocol.metadata.m25_abort_transaction import AbortTransactionRecord
from protocol.schema import Message

BOOTSTRAP: Final = "Bootstrap records"
FAILOVER: Final = "Controller failover"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """What a cluster is given to begin with: its first records, and the level of metadata.version among them."""

    records: tuple[Message, ...]
    metadata_version: int


def bootstrap_at(metadata_version: int) -> Bootstrap:
    """Return what a cluster begins with that is told nothing but its level."""
    return Bootstrap(records=(FeatureLevelRecord(name=FEATURE, feature_level=metadata_version),), metadata_version=metadata_version)


def bootstrap_records(bootstrap: Bootstrap, *, migrates_in_transactions: bool = True) -> list[Message]:
    """Return what an empty log begins with: what the cluster is given, and that there never was a ZooKeeper.

    That is said wherever it can be, or, by releases that migrate no cluster without transactions, only from the level on that has them.
    """
    level = MetadataLevel(bootstrap.metadata_version)
    records = list(bootstrap.records)
    if level.has_transactions or (level.has_migration_state and not migrates_in_transactions):
        records.append(ZkMigrationStateRecord(zk_migration_state=NONE))
    return [BeginTransactionRecord(name=BOOTSTRAP), *records, EndTransactionRecord()] if level.has_transactions else records


def takeover_records(*, is_in_transaction: bool) -> list[Message]:
    """Return what a log that is not empty needs from a new active controller: an end to what the one before left open."""
    return [AbortTransactionRecord(reason=FAILOVER)] if is_in_transaction else []
