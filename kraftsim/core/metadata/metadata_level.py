"""What a metadata.version enables in the metadata log: record types, and the version of each.

The one place in core that compares levels.
Source: org.apache.kafka.server.common.MetadataVersion.
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
"""3.0-IV1, the first KRaft level; a broker that does not report metadata.version supports just
this.
"""

SINCE_LEVEL: Final = {
    RegisterBrokerRecord: ((30, 4), (17, 3), (8, 2), (7, 1)),
    PartitionRecord: ((23, 2), (17, 1)),
    PartitionChangeRecord: ((23, 2), (17, 1)),
}
"""record -> (level, record version from this level on), newest first; below all of them, and for
every other record: 0.
"""


class MetadataLevel(Struct, frozen=True):
    """A metadata.version such as 21 (3.9-IV0)."""

    level: int

    @property
    def bumps_leader_epoch_on_isr_shrink(self) -> bool:
        """Before 3.6-IV0 every ISR shrink bumped the leader epoch (KAFKA-15021)."""
        return self.level < 12

    @property
    def has_no_op_records(self) -> bool:
        """Since 3.3-IV1 an idle active controller writes NoOpRecords (KIP-835)."""
        return self.level >= 5

    @property
    def has_registration_changes(self) -> bool:
        """Since 3.3-IV2 one record type has all changes of a registration (before: one to fence,
        one to unfence).
        """
        return self.level >= 6

    @property
    def has_controlled_shutdown(self) -> bool:
        """Since 3.3-IV3 a controlled shutdown is recorded (KIP-841)."""
        return self.level >= 7

    @property
    def has_migration_state(self) -> bool:
        """Since 3.4-IV0 the migration state is recorded (KIP-866)."""
        return self.level >= 8

    @property
    def has_scram_credentials(self) -> bool:
        """Since 3.5-IV2 the log holds SCRAM credentials (KIP-900)."""
        return self.level >= 11

    @property
    def has_transactions(self) -> bool:
        """Since 3.6-IV1 there are metadata transactions, between BeginTransaction and
        EndTransaction (KIP-868).
        """
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
        """Since 4.0-IV1 partitions may have eligible leader replicas (KIP-966)."""
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
        """Return the version of a record.

        A BrokerRegistrationChange uses the lowest version that has its changed fields.

        If it changes neither fencing, controlled shutdown nor cordons, it changes directories,
        possibly to none.
        """
        if isinstance(record, BrokerRegistrationChangeRecord):
            return (
                3
                if record.cordoned_log_dirs is not None
                else 0
                if record.fenced
                else 1
                if record.in_controlled_shutdown
                else 2
            )
        for since_level, version in SINCE_LEVEL.get(type(record), ()):
            if self.level >= since_level:
                return version
        return 0
