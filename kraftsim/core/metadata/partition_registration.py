"""A partition of the metadata log; the same type on controllers and in the brokers' images.

Source: org.apache.kafka.metadata.PartitionRegistration.
"""

from dataclasses import dataclass
from typing import Final

from kraftsim.core.metadata.metadata_level import MetadataLevel
from protocol.metadata.m03_partition import PartitionRecord
from protocol.metadata.m05_partition_change import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    NO_RECOVERY_STATE_CHANGE,
    PartitionChangeRecord,
)
from protocol.uuids import MIGRATING_DIRECTORY_ID

NO_ELIGIBLE_LEADERS: Final = PartitionChangeRecord(eligible_leader_replicas=[], last_known_elr=[])
"""The effect of a ClearElrRecord on a partition with an ELR: a change like any other, so that the
partition epoch is bumped.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRegistration:
    """replicas are in order of preference; directories correspond to them (all zero if not
    recorded: below level 17).

    eligible_leader_replicas left the ISR and may still lead; last_known_elr is the last leader of a
    leaderless partition. Both are empty up to 4.0 (KIP-966).
    """

    replicas: tuple[int, ...]
    directories: tuple[bytes, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    leader: int
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @property
    def has_leader(self) -> bool:
        """Whether it has a leader."""
        return self.leader != NO_LEADER

    @property
    def has_preferred_leader(self) -> bool:
        """Whether the preferred replica is the leader."""
        return self.leader == (self.replicas[0] if self.replicas else NO_LEADER)

    @property
    def is_reassigning(self) -> bool:
        """Whether it is being reassigned."""
        return bool(self.removing_replicas or self.adding_replicas)

    def directory_of(self, replica: int) -> bytes:
        """Return the directory of one of the replicas."""
        return self.directories[self.replicas.index(replica)]

    def changed_by(self, record: PartitionChangeRecord) -> "PartitionRegistration":
        """Return the partition after a change.

        A record with a leader, even the same one, bumps the leader epoch; any record bumps the
        partition epoch.
        """
        names_leader = record.leader != NO_LEADER_CHANGE
        recovers = record.leader_recovery_state != NO_RECOVERY_STATE_CHANGE
        replicas = _changed(self.replicas, record.replicas)
        return PartitionRegistration(
            replicas=replicas,
            directories=_known_directories(
                self.directories if record.directories is None else tuple(record.directories),
                len(replicas),
            ),
            isr=_changed(self.isr, record.isr),
            removing_replicas=_changed(self.removing_replicas, record.removing_replicas),
            adding_replicas=_changed(self.adding_replicas, record.adding_replicas),
            leader=record.leader if names_leader else self.leader,
            leader_recovery_state=record.leader_recovery_state
            if recovers
            else self.leader_recovery_state,
            leader_epoch=self.leader_epoch + names_leader,
            partition_epoch=self.partition_epoch + 1,
            eligible_leader_replicas=_changed(
                self.eligible_leader_replicas, record.eligible_leader_replicas
            ),
            last_known_elr=_changed(self.last_known_elr, record.last_known_elr),
        )


def partition_of(record: PartitionRecord) -> PartitionRegistration:
    """Return the partition of a PartitionRecord."""
    return PartitionRegistration(
        replicas=tuple(record.replicas),
        directories=_known_directories(tuple(record.directories), len(record.replicas)),
        isr=tuple(record.isr),
        removing_replicas=tuple(record.removing_replicas),
        adding_replicas=tuple(record.adding_replicas),
        leader=record.leader,
        leader_recovery_state=record.leader_recovery_state,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
        last_known_elr=tuple(record.last_known_elr or ()),
    )


def partition_record(
    topic_id: bytes, partition_id: int, partition: PartitionRegistration, level: MetadataLevel
) -> PartitionRecord:
    """Return the full partition as a record, in the version of a metadata.version."""
    return PartitionRecord(
        partition_id=partition_id,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories) if level.has_directories else [],
        eligible_leader_replicas=list(partition.eligible_leader_replicas) or None
        if level.has_eligible_leaders
        else None,
        last_known_elr=list(partition.last_known_elr) or None
        if level.has_eligible_leaders
        else None,
    )


def _changed(present: tuple[int, ...], following: list[int] | None) -> tuple[int, ...]:
    return present if following is None else tuple(following)


def _known_directories(directories: tuple[bytes, ...], replica_count: int) -> tuple[bytes, ...]:
    """Return one directory per replica: zeros if they are not recorded."""
    is_known = any(directory != MIGRATING_DIRECTORY_ID for directory in directories)
    return directories if is_known else (MIGRATING_DIRECTORY_ID,) * replica_count
