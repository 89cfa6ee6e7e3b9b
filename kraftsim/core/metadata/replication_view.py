"""The state that topic and partition rules read, and the change of one partition.

Source: org.apache.kafka.controller.ReplicationControlManager.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from kraftsim.core.metadata.broker_registration import BrokerRegistration
from kraftsim.core.metadata.cluster_control import ClusterControl
from kraftsim.core.metadata.config_control import ALL_BROKERS, MIN_IN_SYNC_CONFIG, ConfigControl
from kraftsim.core.metadata.controller_node import EARLY_BEHAVIOR, ReplicationBehavior
from kraftsim.core.metadata.eligible_leaders import EligibleLeaderRules
from kraftsim.core.metadata.feature_control import FeatureControl
from kraftsim.core.metadata.metadata_level import MetadataLevel
from kraftsim.core.metadata.partition_change import (
    ChangeRules,
    Election,
    PartitionTarget,
    changed_partition,
)
from kraftsim.core.metadata.partition_registration import PartitionRegistration
from kraftsim.core.metadata.topic_table import PartitionKey, TopicTable
from protocol.config_resources import ConfigResourceType
from protocol.metadata.m05_partition_change import PartitionChangeRecord
from protocol.uuids import LOST_DIRECTORY_ID, MIGRATING_DIRECTORY_ID, UNASSIGNED_DIRECTORY_ID

NO_BROKER: Final = -1
RECORDS_PER_OPERATION_MAX: Final = 10_000
"""QuorumController.MAX_RECORDS_PER_USER_OP: the records of a user request are written
atomically.
"""
TOO_LARGE: Final = "Unable to perform excessively large batch operation."
NO_TOPIC: Final = ""
UNCLEAN_ELECTION_CONFIG: Final = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    """The defaults of CreateTopics: num.partitions and default.replication.factor of the node."""

    num_partitions: int = 1
    replication_factor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationView:
    """A read-only view of the cluster state."""

    topics: TopicTable
    features: FeatureControl
    cluster: ClusterControl
    configs: ConfigControl
    defaults: TopicDefaults
    behavior: ReplicationBehavior = EARLY_BEHAVIOR

    @property
    def level(self) -> MetadataLevel:
        """The current metadata.version of the cluster."""
        return self.features.metadata_level

    def elections(self) -> Callable[[str], Election]:
        """Return a function from a topic to its election type.

        The defaults are looked up once: use it for many topics.
        """
        by_default = _election(
            self.configs.effective_topic_config(NO_TOPIC, UNCLEAN_ELECTION_CONFIG)
        )

        def election_of(topic: str) -> Election:
            own = self.configs.configs_of(ConfigResourceType.TOPIC, topic).get(
                UNCLEAN_ELECTION_CONFIG
            )
            return by_default if own is None else _election(own)

        return election_of

    def election_of(self, topic: str) -> Election:
        """Return the election type of one topic."""
        return self.elections()(topic)

    def default_directory(self, broker_id: int) -> bytes:
        """Return the directory of a broker's new replica: its only one, or UNASSIGNED, so that the
        broker chooses.
        """
        broker = self.cluster.broker(broker_id)
        if broker is None:
            return UNASSIGNED_DIRECTORY_ID
        if not broker.directories:
            return MIGRATING_DIRECTORY_ID
        return broker.directories[0] if len(broker.directories) == 1 else UNASSIGNED_DIRECTORY_ID

    def active_of(self, replicas: Iterable[int]) -> tuple[int, ...]:
        """Return the active replicas: the first ISR of a new partition."""
        return tuple(replica for replica in replicas if self.cluster.is_active(replica))

    def change(
        self,
        key: PartitionKey,
        partition: PartitionRegistration,
        target: PartitionTarget,
        election: Election,
        is_active: Callable[[int], bool] | None = None,
        shut_down_uncleanly: Collection[int] = (),
        *,
        forgets_eligible: bool = False,
    ) -> PartitionChangeRecord | None:
        """Return the change record to a target, or None if nothing changes.

        `is_active` overrides the broker states.
        """
        keeps_eligible = self.features.has_eligible_leaders and not forgets_eligible
        in_service = self.cluster.is_active if is_active is None else is_active
        rules = ChangeRules(
            level=self.level,
            election=election,
            may_lead=lambda replica: (
                in_service(replica) and self._has_online_directory(partition, replica)
            ),
            default_directory=self.default_directory,
            eligible=self._eligible_leader_rules(key[0], shut_down_uncleanly)
            if keeps_eligible
            else None,
            moves_wait_for_all=self.behavior.moves_wait_for_all,
            suits_zookeeper=self.cluster.standing.takes_zookeeper_brokers,
        )
        record = changed_partition(partition, target, rules)
        if record is not None:
            record.topic_id, record.partition_id = key
        return record

    def min_in_sync_replicas(self, topic_id: bytes) -> int:
        """Return the effective min.insync.replicas of a topic, at most the replication factor of
        its first partition.
        """
        topic = self.topics.topic(topic_id)
        assert topic is not None, "a partition belongs to a topic"
        configs = self.configs
        own = configs.configs_of(ConfigResourceType.TOPIC, topic.name).get(MIN_IN_SYNC_CONFIG)
        of_cluster = configs.configs_of(ConfigResourceType.BROKER, ALL_BROKERS).get(
            MIN_IN_SYNC_CONFIG
        )
        value = own or of_cluster or configs.effective_topic_config(topic.name, MIN_IN_SYNC_CONFIG)
        return min(int(value), len(topic.partitions[0].replicas))

    def _eligible_leader_rules(
        self, topic_id: bytes, shut_down_uncleanly: Collection[int]
    ) -> EligibleLeaderRules:
        return EligibleLeaderRules(
            min_in_sync_replicas=self.min_in_sync_replicas(topic_id),
            shut_down_uncleanly=shut_down_uncleanly,
        )

    def _has_online_directory(self, partition: PartitionRegistration, replica: int) -> bool:
        """Return whether the directory of a replica is online, as reported by its broker."""
        broker = self.cluster.broker(replica)
        return (
            broker is not None
            and replica in partition.replicas
            and is_online(partition.directory_of(replica), broker)
        )


def is_online(directory: bytes, broker: BrokerRegistration) -> bool:
    """Return whether a directory of a broker is online.

    An unassigned one is, and so is any of a broker without registered directories (KAFKA-16162).
    """
    if directory in (MIGRATING_DIRECTORY_ID, UNASSIGNED_DIRECTORY_ID):
        return True
    return directory != LOST_DIRECTORY_ID and (
        not broker.directories or directory in broker.directories
    )


def _election(allows_unclean: str) -> Election:
    """Parse a value like Kafka's controller: with surrounding whitespace it is valid, and false
    (Boolean.parseBoolean).
    """
    return Election.UNCLEAN if allows_unclean.lower() == "true" else Election.ONLINE
