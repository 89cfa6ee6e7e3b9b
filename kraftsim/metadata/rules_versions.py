"""Versions of the cluster: metadata.version and what it enables, the other features, and
inter.broker.protocol.version.

No other rules compare levels.
Source: KIP-584, KIP-1022, org.apache.kafka.server.common.{MetadataVersion, Feature},
kafka.api.ApiVersion.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from msgspec import Struct

from protocol.metadata.registrations import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from protocol.metadata.topics import PartitionChangeRecord, PartitionRecord
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


# --------------------------------------------------------------------------------------------------
# What a metadata.version enables in the metadata log: record types, and the version of each


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


# --------------------------------------------------------------------------------------------------
# The features besides metadata.version: dependencies of each level, and default levels of a new
# cluster
#
# Source: org.apache.kafka.server.common.{TransactionVersion, GroupVersion,
# EligibleLeaderReplicasVersion, ShareVersion, StreamsVersion} (4.4), `kafka-storage
# version-mapping` and `feature-dependencies`.

TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevel:
    """One level of a feature.

    It is the default of new clusters since a metadata.version (`since`); `needs`: feature -> lowest
    required level.
    """

    level: int
    since: int
    needs: Mapping[str, int] = field(default_factory=dict)


FEATURE_LEVELS: Final[Mapping[str, tuple[FeatureLevel, ...]]] = {
    ELIGIBLE_LEADER_REPLICAS_VERSION: (FeatureLevel(level=1, since=26, needs={FEATURE: 23}),),
    GROUP_VERSION: (FeatureLevel(level=1, since=22),),
    SHARE_VERSION: (FeatureLevel(level=1, since=28), FeatureLevel(level=2, since=31)),
    STREAMS_VERSION: (FeatureLevel(level=1, since=29),),
    TRANSACTION_VERSION: (FeatureLevel(level=1, since=24), FeatureLevel(level=2, since=24)),
}
"""Level 0 is the absence of a feature. kraft.version is not here: it is stored in the quorum state,
not in a metadata record.
"""


def default_levels(
    metadata_version: int, supported: Mapping[str, tuple[int, int]]
) -> dict[str, int]:
    """Return feature -> default level for a metadata.version, sorted by name; those with level 0
    are left out.
    """
    found = {}
    for name, levels in FEATURE_LEVELS.items():
        _, highest = supported.get(name, (0, 0))
        had = [
            each.level
            for each in levels
            if each.since <= metadata_version and each.level <= highest
        ]
        if had:
            found[name] = max(had)
    return found


def needs_of(name: str, level: int) -> Mapping[str, int]:
    """Return feature -> lowest level that a level of a feature depends on."""
    return next((each.needs for each in FEATURE_LEVELS.get(name, ()) if each.level == level), {})


# --------------------------------------------------------------------------------------------------
# The levels of metadata.version by name, and which of them changed the metadata format
#
# A downgrade is lossless only if no level in between changed the format.
# Source: MetadataVersion (3.9, 4.4).


@dataclass(frozen=True, slots=True)
class MetadataVersion:
    """`changes_metadata`: from this level on the log may have records that older nodes cannot
    read.
    """

    name: str
    changes_metadata: bool


METADATA_VERSIONS: Final[Mapping[int, MetadataVersion]] = {
    1: MetadataVersion("3.0-IV1", True),
    2: MetadataVersion("3.1-IV0", False),
    3: MetadataVersion("3.2-IV0", True),
    4: MetadataVersion("3.3-IV0", False),
    5: MetadataVersion("3.3-IV1", True),
    6: MetadataVersion("3.3-IV2", True),
    7: MetadataVersion("3.3-IV3", True),
    8: MetadataVersion("3.4-IV0", True),
    9: MetadataVersion("3.5-IV0", False),
    10: MetadataVersion("3.5-IV1", False),
    11: MetadataVersion("3.5-IV2", True),
    12: MetadataVersion("3.6-IV0", False),
    13: MetadataVersion("3.6-IV1", True),
    14: MetadataVersion("3.6-IV2", True),
    15: MetadataVersion("3.7-IV0", True),
    16: MetadataVersion("3.7-IV1", False),
    17: MetadataVersion("3.7-IV2", True),
    18: MetadataVersion("3.7-IV3", False),
    19: MetadataVersion("3.7-IV4", False),
    20: MetadataVersion("3.8-IV0", False),
    21: MetadataVersion("3.9-IV0", False),
    22: MetadataVersion("4.0-IV0", False),
    23: MetadataVersion("4.0-IV1", True),
    24: MetadataVersion("4.0-IV2", False),
    25: MetadataVersion("4.0-IV3", False),
    26: MetadataVersion("4.1-IV0", False),
    27: MetadataVersion("4.1-IV1", False),
    28: MetadataVersion("4.2-IV0", False),
    29: MetadataVersion("4.2-IV1", False),
    30: MetadataVersion("4.3-IV0", True),
    31: MetadataVersion("4.4-IV0", False),
    32: MetadataVersion("4.4-IV1", True),
    33: MetadataVersion("4.4-IV2", True),
}
FIRST_WITH_FEATURE_RECORDS: Final = 4
"""3.3-IV0, the lowest level that can be set: the first with a FeatureLevelRecord."""
BEFORE_KRAFT: Final = (
    "0.8.0 0.8.1 0.8.2 0.9.0 0.10.0-IV0 0.10.0-IV1 0.10.1-IV0 0.10.1-IV1 0.10.1-IV2 0.10.2-IV0 "
    "0.11.0-IV0 0.11.0-IV1 0.11.0-IV2 1.0-IV0 1.1-IV0 2.0-IV0 2.0-IV1 2.1-IV0 2.1-IV1 2.1-IV2 "
    "2.2-IV0 2.2-IV1 2.3-IV0 2.3-IV1 2.4-IV0 2.4-IV1 2.5-IV0 2.6-IV0 2.7-IV0 2.7-IV1 2.7-IV2 "
    "2.8-IV0 2.8-IV1 3.0-IV0"
)
"""Versions of ZooKeeper mode, which have no level."""
LAST_OF_3_9: Final = 23


def is_lossless(current_level: int, lower_level: int) -> bool:
    """Return whether a downgrade is lossless: whether no level above the lower one changed the
    metadata.
    """
    return not any(
        version.changes_metadata
        for level, version in METADATA_VERSIONS.items()
        if lower_level < level <= current_level
    )


@cache
def known_version_names() -> frozenset[str]:
    """Return the names that 3.9 accepts as message format: full ones, and short ones for the last
    level of a release.
    """
    full = [
        *BEFORE_KRAFT.split(),
        *(version.name for level, version in METADATA_VERSIONS.items() if level <= LAST_OF_3_9),
    ]
    return frozenset([*full, *(name.partition("-")[0] for name in full)])


# --------------------------------------------------------------------------------------------------
# inter.broker.protocol.version: the levels by name, their order, and what each enables
#
# A ZooKeeper-mode cluster has no finalized level: each broker uses its own setting, and they differ
# during a rolling upgrade. Levels before 3.0-IV1 have no number.
# Source: MetadataVersion, kafka.api.ApiVersion (2.3 to 2.8).

WITHOUT_NUMBER: Final = -1
LEVELS_BY_NAME: Final[Mapping[str, int]] = {
    **dict.fromkeys(BEFORE_KRAFT.split(), WITHOUT_NUMBER),
    **{version.name: level for level, version in METADATA_VERSIONS.items()},
}
"""In order; -1 for a level without a number."""
RANKS: Final[Mapping[str, int]] = {name: rank for rank, name in enumerate(LEVELS_BY_NAME)}
LAST_RANK_OF_3_9: Final = RANKS["3.9-IV0"]


class UnknownProtocolVersion(ValueError):
    """No level has this name; the message is Kafka's."""


@dataclass(frozen=True, slots=True, order=True)
class ProtocolVersion:
    """A level such as 2.8-IV1; a later one is greater."""

    rank: int
    name: str = field(compare=False)

    @classmethod
    def parse(cls, text: str) -> "ProtocolVersion":
        """Return a level by its name, or the last one of a release ("2.8", "2.8.1").

        Raises UnknownProtocolVersion.
        """
        key = _looked_up_by(text)
        name = key if key in RANKS else _last_of_releases().get(key)
        if name is None or RANKS[name] > LAST_RANK_OF_3_9:
            raise UnknownProtocolVersion(f"Version {text} is not a valid version")
        return cls(RANKS[name], name)

    @property
    def level(self) -> int:
        """The level of metadata.version, -1 before 3.0-IV1."""
        return LEVELS_BY_NAME[self.name]

    @property
    def release(self) -> str:
        """The release line that introduced it, such as 2.8."""
        return self.name.partition("-")[0]

    def is_at_least(self, name: str) -> bool:
        """Return whether this level is at least the named one."""
        return self.rank >= RANKS[name]

    @property
    def has_feature_znode(self) -> bool:
        """Whether the controller stores finalized features in /feature, and brokers register their
        supported features (KIP-584).
        """
        return self.is_at_least("2.7-IV0")

    @property
    def uses_alter_partition(self) -> bool:
        """Whether a leader sends AlterPartition to change the ISR (KIP-497; before: it writes the
        state znode and an ISR change notification).
        """
        return self.is_at_least("2.7-IV2")

    @property
    def has_topic_ids(self) -> bool:
        """Whether a topic has an id (KIP-516)."""
        return self.is_at_least("2.8-IV0")

    @property
    def allocates_producer_ids(self) -> bool:
        """Whether a broker gets producer ids from the controller (KIP-730; before: from
        ZooKeeper).
        """
        return self.is_at_least("3.0-IV0")

    @property
    def has_leader_recovery(self) -> bool:
        """Whether the leader recovery state is recorded (KIP-704)."""
        return self.is_at_least("3.2-IV0")

    @property
    def can_migrate(self) -> bool:
        """Whether a migration to KRaft is possible, and requests are forwarded (KIP-866)."""
        return self.is_at_least("3.4-IV0")


def _looked_up_by(text: str) -> str:
    """Return the lookup key of Kafka: the first two components, for 0.x the first three."""
    parts = text.split(".")
    return ".".join(parts[: 3 if parts[0] == "0" else 2])


@cache
def _last_of_releases() -> dict[str, str]:
    """Return release -> its last level."""
    return {name.partition("-")[0]: name for name in RANKS}
