"""What a level of metadata.version allows in the metadata log: which records, and in which version each is written.

The one place in core that compares levels.   Source: org.apache.kafka.server.common.MetadataVersion.
"""

from typing import Final

from msgspec import Struct

from protocol.metadata.m00_register_broker import RegisterBrokerRecord
from protocol.metadata.m03_partition import PartitionRecord
from protocol.metadata.m05_partition_change import PartitionChangeRecord
from protocol.metadata.m17_broker_registration_change import BrokerRegistrationChangeRecord
from protocol.schema import Message

FEATURE: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
MINIMUM_LEVEL: Final = 1
"""3.0-IV1, the first level with KRaft; a broker that says nothing of metadata.version supports just this."""

SINCE_LEVEL: Final = {
    RegisterBrokerRecord: ((30, 4), (17, 3), (8, 2), (7, 1)),
    PartitionRecord: ((23, 2), (17, 1)),
    PartitionChangeRecord: ((23, 2), (17, 1)),
}
"""record -> (level, version of the record that is written from this level on), newest first; below all of them, and for every other record: 0."""


class MetadataLevel(Struct, frozen=True):
    """A level such as 21, called 3.9-IV0."""

    level: int

    @property
    def bumps_leader_epoch_on_isr_shrink(self) -> bool:
        """Before 3.6-IV0 every replica that left the ISR cost a leader epoch (KAFKA-15021)."""
        return self.level < 12

    @property
    def has_no_op_records(self) -> bool:
        """Since 3.3-IV1 the active controller writes NoOpRecords while nothing happens (KIP-835)."""
        return self.level >= 5

    @property
    def has_registration_changes(self) -> bool:
        """Since 3.3-IV2 one record says what became of a broker (before: one that fences, and one that unfences)."""
        return self.level >= 6

    @property
    def has_controlled_shutdown(self) -> bool:
        """Since 3.3-IV3 the log says that a broker is shutting down (KIP-841)."""
        return self.level >= 7

    @property
    def has_migration_state(self) -> bool:
        """Since 3.4-IV0 the log says whether it came from ZooKeeper (KIP-866)."""
        return self.level >= 8

    @property
    def has_scram_credentials(self) -> bool:
        """Since 3.5-IV2 the log holds SCRAM credentials (KIP-900)."""
        return self.level >= 11

    @property
    def has_transactions(self) -> bool:
        """Since 3.6-IV1 records can stand between BeginTransaction and EndTransaction (KIP-868)."""
        return self.level >= 13

    @property
    def has_controller_registrations(self) -> bool:
        """Since 3.7-IV0 controllers register, too (KIP-919)."""
        return self.level >= 15

    @property
    def has_directories(self) -> bool:
        """Since 3.7-IV2 brokers register their log directories (KIP-858)."""
        return self.level >= 17

    @property
    def has_eligible_leaders(self) -> bool:
        """Since 4.0-IV1 partitions may remember who could still lead them without loss (KIP-966)."""
        return self.level >= 23

    @property
    def has_cordons(self) -> bool:
        """Since 4.3-IV0 directories can be cordoned (KIP-1066)."""
        return self.level >= 30

    @property
    def has_controller_unregistration(self) -> bool:
        """Since 4.4-IV2 controllers can be unregistered."""
        return self.level >= 33

    @property
    def has_leader_recovery(self) -> bool:
        """Since 3.2-IV0 a leader that was elected uncleanly is marked as one (KIP-704)."""
        return self.level >= 3

    def record_version(self, record: Message) -> int:
        """Return the version in which a record is written. A BrokerRegistrationChange is in the lowest version that can say what it is about.

        One that is about neither fencing, shutting down nor cordons is about directories, also when none is left.
        """
        if isinstance(record, BrokerRegistrationChangeRecord):
            return 3 if record.cordoned_log_dirs is not None else 0 if record.fenced else 1 if record.in_controlled_shutdown else 2
        for since_level, version in SINCE_LEVEL.get(type(record), ()):
            if self.level >= since_level:
                return version
        return 0
