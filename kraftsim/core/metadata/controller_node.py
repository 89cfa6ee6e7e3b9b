"""What a controller knows of itself: who it is, what it supports, what its properties say, and who else is in the quorum by them.

Source: org.apache.kafka.controller.QuorumFeatures, org.apache.kafka.metadata.KafkaConfigSchema.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kraftsim.core.metadata.config_releases import KAFKA_3_9
from kraftsim.core.metadata.config_tables import ConfigTables
from protocol.config_resources import ConfigResourceType

NOBODY: Final = -1
BEFORE_CLIENT_METRICS: Final = frozenset((ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationManners:
    """In what releases differ about partitions.

    `moves_wait_for_all`: a move is done only when all who shall stay are in sync (up to 4.2).
    `assignments_forget_eligible`: where a replica is said to lie in a directory, nobody is an eligible leader any more (up to 4.2).
    """

    moves_wait_for_all: bool = True
    assignments_forget_eligible: bool = True


EARLY_MANNERS: Final = ReplicationManners()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerNode:
    """One controller. `supported_features` maps a feature to its (lowest, highest) level; `quorum_ids` are the voters that its properties name."""

    node_id: int = NOBODY
    supported_features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    quorum_ids: tuple[int, ...] = ()
    static_configs: Mapping[str, str] = field(default_factory=dict)
    config_tables: ConfigTables = KAFKA_3_9
    resource_types: frozenset[ConfigResourceType] = BEFORE_CLIENT_METRICS | {ConfigResourceType.CLIENT_METRICS}
    """What can have configurations as far as its release knows."""
    looks_back_at_registration: bool = False
    """Whether a new incarnation of a broker loses what the one before had when it registers (since 4.0)."""
    explains_unregistration: bool = False
    """Whether it is said why a broker cannot be unregistered (since 4.0)."""
    replication: ReplicationManners = EARLY_MANNERS
    names_downgrades: bool = False
    """Whether a refused downgrade of metadata.version is told with both levels (since 4.3)."""
    migrates: bool = False
    """Whether it takes the cluster over from ZooKeeper (zookeeper.metadata.migration.enable)."""
    inter_broker_listener: str | None = None
    """The listener that a broker which migrates must have."""
    updates_features_atomically: bool = False
    """Whether UpdateFeatures changes all or nothing (since 4.0)."""
