"""ZkMigrationStateRecord (21): the state of the migration from ZooKeeper (3.4).

Source: KIP-866, KAFKA-14805, ZkMigrationRecord.json.
"""

from protocol.schema import int8, message

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
