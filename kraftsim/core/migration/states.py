"""The states of the migration driver, and the valid transitions.

Source: KIP-866, org.apache.kafka.metadata.migration.{MigrationDriverState,
KRaftMigrationDriver.isValidStateChange} of 3.9.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final


class DriverState(Enum):
    """The state of one controller's driver."""

    UNINITIALIZED = "UNINITIALIZED"
    INACTIVE = "INACTIVE"
    """Another controller is leader, or there is nothing to migrate."""
    WAIT_FOR_CONTROLLER_QUORUM = "WAIT_FOR_CONTROLLER_QUORUM"
    WAIT_FOR_BROKERS = "WAIT_FOR_BROKERS"
    BECOME_CONTROLLER = "BECOME_CONTROLLER"
    """Claims /controller."""
    ZK_MIGRATION = "ZK_MIGRATION"
    """Copies ZooKeeper's metadata to the metadata log."""
    SYNC_KRAFT_TO_ZK = "SYNC_KRAFT_TO_ZK"
    """Brings ZooKeeper in line with the log."""
    KRAFT_CONTROLLER_TO_BROKER_COMM = "KRAFT_CONTROLLER_TO_BROKER_COMM"
    """Sends all metadata to the brokers in ZooKeeper mode."""
    DUAL_WRITE = "DUAL_WRITE"

    @property
    def mirrors(self) -> bool:
        """Whether changes of the log are written to ZooKeeper and sent to brokers."""
        return self in (DriverState.KRAFT_CONTROLLER_TO_BROKER_COMM, DriverState.DUAL_WRITE)


S = DriverState
NEXT: Final[Mapping[DriverState, frozenset[DriverState]]] = {
    S.UNINITIALIZED: frozenset({S.INACTIVE}),
    S.INACTIVE: frozenset({S.WAIT_FOR_CONTROLLER_QUORUM}),
    S.WAIT_FOR_CONTROLLER_QUORUM: frozenset({S.INACTIVE, S.WAIT_FOR_BROKERS, S.BECOME_CONTROLLER}),
    S.WAIT_FOR_BROKERS: frozenset({S.INACTIVE, S.BECOME_CONTROLLER}),
    S.BECOME_CONTROLLER: frozenset({S.INACTIVE, S.ZK_MIGRATION, S.SYNC_KRAFT_TO_ZK}),
    S.ZK_MIGRATION: frozenset({S.INACTIVE, S.SYNC_KRAFT_TO_ZK}),
    S.SYNC_KRAFT_TO_ZK: frozenset({S.INACTIVE, S.KRAFT_CONTROLLER_TO_BROKER_COMM}),
    S.KRAFT_CONTROLLER_TO_BROKER_COMM: frozenset({S.INACTIVE, S.DUAL_WRITE}),
    S.DUAL_WRITE: frozenset({S.INACTIVE}),
}
