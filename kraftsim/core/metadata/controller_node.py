"""The local properties of a controller: node id, supported features, static configuration, quorum
voters.

Source: org.apache.kafka.controller.QuorumFeatures, org.apache.kafka.metadata.KafkaConfigSchema.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kraftsim.core.metadata.config_releases import KAFKA_3_9
from kraftsim.core.metadata.config_tables import ConfigTables
from protocol.config_resources import ConfigResourceType

UNKNOWN_ID: Final = -1
BEFORE_CLIENT_METRICS: Final = frozenset(
    (ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationBehavior:
    """Release differences of partition changes.

    `moves_wait_for_all`: a reassignment completes only when all target replicas are in sync (up to
    4.2). `assignments_forget_eligible`: assigning a replica to a directory clears the eligible
    leader replicas (up to 4.2).
    """

    moves_wait_for_all: bool = True
    assignments_forget_eligible: bool = True


EARLY_BEHAVIOR: Final = ReplicationBehavior()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerNode:
    """One controller.

    `supported_features`: feature -> (min, max level); `quorum_ids`: the static voters.
    """

    node_id: int = UNKNOWN_ID
    supported_features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    quorum_ids: tuple[int, ...] = ()
    static_configs: Mapping[str, str] = field(default_factory=dict)
    config_tables: ConfigTables = KAFKA_3_9
    resource_types: frozenset[ConfigResourceType] = BEFORE_CLIENT_METRICS | {
        ConfigResourceType.CLIENT_METRICS
    }
    """The resource types with configurations in its release."""
    fences_at_registration: bool = False
    """Whether the registration of a new incarnation fences the partitions of the former one (since
    4.0).
    """
    explains_unregistration: bool = False
    """Whether the error of a failed unregistration has a message (since 4.0)."""
    replication: ReplicationBehavior = EARLY_BEHAVIOR
    names_downgrades: bool = False
    """Whether the error of an unsafe metadata.version downgrade names both levels (since 4.3)."""
    migrates: bool = False
    """Whether it migrates the cluster from ZooKeeper (zookeeper.metadata.migration.enable)."""
    inter_broker_listener: str | None = None
    """The listener that a migrating broker must have."""
    updates_features_atomically: bool = False
    """Whether UpdateFeatures is all or nothing (since 4.0)."""
