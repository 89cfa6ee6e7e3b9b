"""ZkMigrationStateRecord (21): how far the move away from ZooKeeper is (3.4).   Source: KIP-866, ZkMigrationRecord.json."""

from protocol.schema import int8, message

NONE = 0
PRE_MIGRATION = 1
MIGRATION = 2
POST_MIGRATION = 3


@message(key=21, kind="metadata", versions="0", flexible="0+")
class ZkMigrationStateRecord:
    """A cluster that never had a ZooKeeper begins with NONE."""

    zk_migration_state: int = int8()
