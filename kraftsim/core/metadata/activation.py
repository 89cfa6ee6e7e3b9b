"""The first records that an active controller writes.

Source: org.apache.kafka.controller.ActivationRecordsGenerator, BootstrapMetadata.
"""

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


def bootstrap_records(metadata_version: int) -> list[Message]:
    """Return what an empty log begins with, one batch: the level of the cluster, and that there never was a ZooKeeper."""
    level = MetadataLevel(metadata_version)
    records: list[Message] = [FeatureLevelRecord(name=FEATURE, feature_level=metadata_version)]
    if level.has_migration_state:
        records.append(ZkMigrationStateRecord(zk_migration_state=NONE))
    return [BeginTransactionRecord(name=BOOTSTRAP), *records, EndTransactionRecord()] if level.has_transactions else records


def takeover_records(*, is_in_transaction: bool) -> list[Message]:
    """Return what a log that is not empty needs from a new active controller: an end to what the one before left open."""
    return [AbortTransactionRecord(reason=FAILOVER)] if is_in_transaction else []
