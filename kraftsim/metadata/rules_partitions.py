"""Leaders and in-sync replicas: AlterPartition, elections, and what follows when brokers and
directories become available or unavailable.

All decisions read a `ReplicationView` and build their records with `rules_partition_changes`.
Source: org.apache.kafka.controller.ReplicationControlManager.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from kraftsim.core.decision import Decision, Refusal, Steps, ends_step, whole
from kraftsim.metadata.rules_brokers import ClusterControl
from kraftsim.metadata.rules_configs import ALL_BROKERS, MIN_IN_SYNC_CONFIG, ConfigControl
from kraftsim.metadata.rules_described_configs import EARLY_BEHAVIOR, ReplicationBehavior
from kraftsim.metadata.rules_features import FeatureControl
from kraftsim.metadata.rules_partition_changes import (
    UNCHANGED,
    ChangeRules,
    Election,
    EligibleLeaderRules,
    PartitionTarget,
    changed_partition,
    partition_events,
)
from kraftsim.metadata.rules_registrations import BrokerRegistration, PartitionRegistration
from kraftsim.metadata.rules_topic_table import PartitionKey, Topic, TopicTable
from kraftsim.metadata.rules_versions import MetadataLevel
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.messages.k43_elect_leaders import PREFERRED, UNCLEAN, ElectLeadersRequest
from protocol.messages.k56_alter_partition import (
    RECOVERED,
    RECOVERING,
    UNCHECKED_BROKER_EPOCH,
    AlterPartitionData,
    AlterPartitionRequest,
    BrokerState,
)
from protocol.metadata.topics import NO_LEADER_CHANGE, PartitionChangeRecord
from protocol.schema import Message
from protocol.uuids import LOST_DIRECTORY_ID, MIGRATING_DIRECTORY_ID, UNASSIGNED_DIRECTORY_ID

NO_BROKER: Final = -1
RECORDS_PER_OPERATION_MAX: Final = 10_000
"""QuorumController.MAX_RECORDS_PER_USER_OP: the records of a user request are written
atomically.
"""
TOO_LARGE: Final = "Unable to perform excessively large batch operation."
NO_TOPIC: Final = ""
UNCLEAN_ELECTION_CONFIG: Final = "unclean.leader.election.enable"


# --------------------------------------------------------------------------------------------------
# The state that topic and partition rules read


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


# --------------------------------------------------------------------------------------------------
# AlterPartition: a leader requests another ISR; accepted if leader and epochs match
#
# Source: KIP-497, KIP-704, KIP-841, KIP-903, ReplicationControlManager.{alterPartition,
# validateAlterPartitionData}.

TOPIC_IDS_SINCE: Final = 2
"""The first version with topic ids, INELIGIBLE_REPLICA and NEW_LEADER_ELECTED."""
BROKER_EPOCHS_SINCE: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredPartition:
    """The current state of the partition, or the error."""

    partition: int
    state: PartitionRegistration | None = None
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredTopic:
    """The partitions of one topic, in the order of the request."""

    topic: str
    topic_id: bytes
    partitions: tuple[AlteredPartition, ...]


def decide_alter_partition(
    view: ReplicationView, request: AlterPartitionRequest, version: int
) -> Decision[list[AlteredTopic]] | Refusal:
    """Change the ISRs that a leader requests, each partition by itself.

    Fails as a whole with STALE_BROKER_EPOCH.

    A change that completes a reassignment may elect another leader: it is applied, and answered
    with NEW_LEADER_ELECTED.
    """
    if not request.topics:
        return Decision([], [])
    if not view.cluster.is_current(request.broker_id, request.broker_epoch):
        return Refusal(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {request.broker_id} is not at epoch {request.broker_epoch}",
        )
    by_id = version >= TOPIC_IDS_SINCE
    results: list[AlteredTopic] = []
    election_of = view.elections()
    records: list[Message] = []
    for row in request.topics:
        topic = (
            view.topics.topic(row.topic_id) if by_id else view.topics.topic_named(row.topic_name)
        )
        partitions = []
        for asked in row.partitions:
            if topic is None:
                unknown = Refusal(
                    ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                partitions.append(
                    AlteredPartition(partition=asked.partition_index, refusal=unknown)
                )
            else:
                partitions.append(
                    _decide_partition(
                        view,
                        topic,
                        election_of(topic.name),
                        request.broker_id,
                        asked,
                        version,
                        records,
                    )
                )
        results.append(
            AlteredTopic(topic=row.topic_name, topic_id=row.topic_id, partitions=tuple(partitions))
        )
    return Decision(records, results, partition_events(records, view.topics))


def _decide_partition(
    view: ReplicationView,
    topic: Topic,
    election: Election,
    broker_id: int,
    asked: AlterPartitionData,
    version: int,
    records: list[Message],
) -> AlteredPartition:
    number = asked.partition_index
    partition = topic.partitions.get(number)
    if partition is None:
        return AlteredPartition(
            partition=number, refusal=Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        )
    new_isr = (
        asked.new_isr_with_epochs
        if version >= BROKER_EPOCHS_SINCE
        else [BrokerState(broker_id=replica) for replica in asked.new_isr]
    )
    refusal = (
        _refuse_epochs(partition, broker_id, asked)
        or _refuse_isr(
            partition, [replica.broker_id for replica in new_isr], asked.leader_recovery_state
        )
        or _refuse_ineligible(view, new_isr, version)
    )
    if refusal is not None:
        return AlteredPartition(partition=number, refusal=refusal)
    target = PartitionTarget(
        isr=tuple(replica.broker_id for replica in new_isr),
        leader_recovery_state=asked.leader_recovery_state,
    )
    record = view.change((topic.topic_id, number), partition, target, election)
    if record is not None:
        records.append(record)
        partition = partition.changed_by(record)
        if record.leader not in (broker_id, NO_LEADER_CHANGE):
            error = (
                ErrorCode.NEW_LEADER_ELECTED
                if version >= TOPIC_IDS_SINCE
                else ErrorCode.FENCED_LEADER_EPOCH
            )
            return AlteredPartition(
                partition=number,
                refusal=Refusal(error, f"the change made {record.leader} the leader"),
            )
    return AlteredPartition(partition=number, state=partition)


def _refuse_epochs(
    partition: PartitionRegistration, broker_id: int, asked: AlterPartitionData
) -> Refusal | None:
    """Return the error of a request with other epochs.

    A request with higher epochs is from a leader of a newer controller: NOT_CONTROLLER.
    """
    if asked.leader_epoch > partition.leader_epoch:
        return Refusal(
            ErrorCode.NOT_CONTROLLER,
            f"the leader epoch is {partition.leader_epoch} here, not {asked.leader_epoch}",
        )
    if asked.partition_epoch > partition.partition_epoch:
        return Refusal(
            ErrorCode.NOT_CONTROLLER,
            f"the partition epoch is {partition.partition_epoch} here, not {asked.partition_epoch}",
        )
    if asked.leader_epoch < partition.leader_epoch:
        return Refusal(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"the leader epoch is {partition.leader_epoch}, not {asked.leader_epoch}",
        )
    if broker_id != partition.leader:
        return Refusal(
            ErrorCode.INVALID_REQUEST, f"the leader is {partition.leader}, not {broker_id}"
        )
    if asked.partition_epoch < partition.partition_epoch:
        return Refusal(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"the partition epoch is {partition.partition_epoch}, not {asked.partition_epoch}",
        )
    return None


def _refuse_isr(
    partition: PartitionRegistration, new_isr: Sequence[int], recovery_state: int
) -> Refusal | None:
    """Return the error of an invalid ISR: unknown or duplicate members, without the leader, or with
    followers while the leader recovers.
    """
    if len(set(new_isr)) != len(new_isr) or not set(new_isr) <= set(partition.replicas):
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"{list(new_isr)} is not a valid ISR of {list(partition.replicas)}",
        )
    if partition.leader not in new_isr:
        return Refusal(ErrorCode.INVALID_REQUEST, f"{list(new_isr)} does not contain the leader")
    if recovery_state not in (RECOVERED, RECOVERING):
        return Refusal(ErrorCode.INVALID_REQUEST, f"unknown leader recovery state {recovery_state}")
    if recovery_state == RECOVERING and len(new_isr) > 1:
        return Refusal(
            ErrorCode.INVALID_REQUEST, "the ISR of a recovering leader can have the leader only"
        )
    if recovery_state == RECOVERING and partition.leader_recovery_state == RECOVERED:
        return Refusal(ErrorCode.INVALID_REQUEST, "the leader has already recovered")
    return None


def _refuse_ineligible(
    view: ReplicationView, new_isr: Sequence[BrokerState], version: int
) -> Refusal | None:
    for replica in new_isr:
        broker = view.cluster.broker(replica.broker_id)
        is_known = broker is not None and replica.broker_epoch in (
            UNCHECKED_BROKER_EPOCH,
            broker.broker_epoch,
        )
        if broker is None or not is_known or not broker.is_active:
            error = (
                ErrorCode.INELIGIBLE_REPLICA
                if version >= TOPIC_IDS_SINCE
                else ErrorCode.OPERATION_NOT_ATTEMPTED
            )
            return Refusal(error, f"broker {replica.broker_id} is not active, or has another epoch")
    return None


# --------------------------------------------------------------------------------------------------
# Elections: by request, and periodically by the controller
#
# Source: KIP-183, KIP-460, ReplicationControlManager.{electLeaders, maybeBalancePartitionLeaders,
# maybeElectUncleanLeaders}.

ELECTIONS_PER_ROUND_MAX: Final = 1_000
"""ReplicationControlManager.MAX_ELECTIONS_PER_IMBALANCE: limits the elections of one batch, so that
other events are handled.
"""
ELECTIONS: Final = {PREFERRED: Election.PREFERRED, UNCLEAN: Election.UNCLEAN}
NOT_AVAILABLE: Final = {
    Election.PREFERRED: Refusal(
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."
    ),
    Election.UNCLEAN: Refusal(
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        "Eligible topic partition leaders are not available.",
    ),
}
NOT_NEEDED: Final = Refusal(
    ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectedPartition:
    """The election result of one partition."""

    topic: str
    partition: int
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectedTopic:
    """The partitions of one topic, in the order of the request."""

    topic: str
    partitions: tuple[ElectedPartition, ...]


def decide_elect_leaders(
    view: ReplicationView, request: ElectLeadersRequest
) -> Decision[list[ElectedTopic]] | Refusal:
    """Elect the leaders of a request.

    If it is for all partitions, those without need of an election are not in the results.

    Fails as a whole with INVALID_REQUEST (unknown election type) or POLICY_VIOLATION (too large).
    """
    return whole(elect_leaders_steps(view, request))


def elect_leaders_steps(
    view: ReplicationView, request: ElectLeadersRequest
) -> Steps[Decision[list[ElectedTopic]] | Refusal]:
    """Like `decide_elect_leaders`, in steps."""
    election = ELECTIONS.get(request.election_type)
    if election is None:
        return Refusal(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    asks_for_all = request.topic_partitions is None
    if request.topic_partitions is None:
        asked: Iterable[tuple[str, Iterable[int]]] = (
            (topic.name, sorted(topic.partitions)) for topic in view.topics.topics()
        )
    else:
        asked = ((row.topic, row.partitions) for row in request.topic_partitions)
    results: list[ElectedTopic] = []
    records: list[Message] = []
    looked_at = count()
    for name, partitions in asked:
        rows = []
        for partition in partitions:
            if ends_step(next(looked_at)):
                yield
            outcome = _elected(view, name, partition, election)
            if isinstance(outcome, PartitionChangeRecord):
                records.append(outcome)
            refusal = outcome if isinstance(outcome, Refusal) else None
            if not asks_for_all or refusal != NOT_NEEDED:
                rows.append(ElectedPartition(topic=name, partition=partition, refusal=refusal))
        results.append(ElectedTopic(topic=name, partitions=tuple(rows)))
    if len(records) > RECORDS_PER_OPERATION_MAX:
        return Refusal(ErrorCode.POLICY_VIOLATION, TOO_LARGE)
    return Decision(records, results, partition_events(records, view.topics))


def decide_balance(view: ReplicationView) -> Decision[bool]:
    """Elect preferred leaders that are in sync and active; the result is whether there may be
    more.
    """
    records: list[Message] = []
    for key in view.topics.imbalanced():
        if len(records) == ELECTIONS_PER_ROUND_MAX:
            break
        record = _election_record(view, key, Election.PREFERRED)
        if record is not None:
            records.append(record)
    return Decision(
        records, len(records) == ELECTIONS_PER_ROUND_MAX, partition_events(records, view.topics)
    )


def decide_unclean_elections(view: ReplicationView) -> Decision[bool]:
    """Elect leaders for leaderless partitions whose topics allow unclean election; the result is
    whether there may be more.
    """
    election_of = view.elections()
    records: list[Message] = []
    for key in view.topics.leaderless():
        if len(records) == ELECTIONS_PER_ROUND_MAX:
            break
        topic = view.topics.topic(key[0])
        assert topic is not None, "a partition belongs to a topic"
        record = (
            _election_record(view, key, Election.UNCLEAN)
            if election_of(topic.name) is Election.UNCLEAN
            else None
        )
        if record is not None:
            records.append(record)
    return Decision(
        records, len(records) == ELECTIONS_PER_ROUND_MAX, partition_events(records, view.topics)
    )


def _elected(
    view: ReplicationView, name: str, number: int, election: Election
) -> PartitionChangeRecord | Refusal:
    topic = view.topics.topic_named(name)
    if topic is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(number)
    if partition is None:
        return Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{number}"
        )
    if partition.has_preferred_leader if election is Election.PREFERRED else partition.has_leader:
        return NOT_NEEDED
    return _election_record(view, (topic.topic_id, number), election) or NOT_AVAILABLE[election]


def _election_record(
    view: ReplicationView, key: PartitionKey, election: Election
) -> PartitionChangeRecord | None:
    partition = view.topics.partition(key)
    assert partition is not None, "elections are for existing partitions only"
    return view.change(key, partition, UNCHANGED, election)


# --------------------------------------------------------------------------------------------------
# A broker or one of its log directories becomes available or unavailable
#
# Only partitions with the broker in their ISR, or without a leader, are visited.
# Source: KIP-631, ReplicationControlManager.generateLeaderAndIsrUpdates.


def departure_records(view: ReplicationView, broker_id: int) -> list[PartitionChangeRecord]:
    """Return the changes that remove a broker from leadership, and from every ISR with another
    member.
    """
    return membership_records(view, view.topics.with_isr_member(broker_id), leaving=broker_id)


def unregistration_records(view: ReplicationView, broker_id: int) -> list[PartitionChangeRecord]:
    """Return the changes that remove an unregistered broker; it may have left some ISRs before."""
    return [
        *departure_records(view, broker_id),
        *membership_records(view, view.topics.with_eligible_leader(broker_id), leaving=broker_id),
    ]


def shutdown_records(
    view: ReplicationView, broker_id: int, *, is_clean: bool
) -> list[PartitionChangeRecord]:
    """Return the changes that remove a broker's former incarnation; after an unclean shutdown also
    from the ELR (KIP-966).
    """
    if is_clean or not view.features.has_eligible_leaders:
        return departure_records(view, broker_id)
    in_sync, eligible = (
        view.topics.with_isr_member(broker_id),
        view.topics.with_eligible_leader(broker_id),
    )
    return membership_records(view, [*in_sync, *eligible], leaving=broker_id, is_unclean=True)


def arrival_records(view: ReplicationView, broker_id: int) -> list[PartitionChangeRecord]:
    """Return the changes that elect a leader for leaderless partitions when a broker is about to be
    unfenced.
    """
    return membership_records(view, view.topics.leaderless(), arriving=broker_id)


def membership_records(
    view: ReplicationView,
    keys: Iterable[PartitionKey],
    *,
    leaving: int = NO_BROKER,
    arriving: int = NO_BROKER,
    is_unclean: bool = False,
) -> list[PartitionChangeRecord]:
    """Return the changes of some partitions when one broker leaves the ISR and leadership, or
    becomes electable.
    """

    def is_active(broker_id: int) -> bool:
        return broker_id != leaving and (broker_id == arriving or view.cluster.is_active(broker_id))

    election_of = view.elections()
    records = []
    for key in keys:
        topic, partition = view.topics.topic(key[0]), view.topics.partition(key)
        assert topic is not None and partition is not None, (
            "the indexes have existing partitions only"
        )
        target = PartitionTarget(
            isr=tuple(replica for replica in partition.isr if replica != leaving)
        )
        record = view.change(
            key,
            partition,
            target,
            election_of(topic.name),
            is_active,
            (leaving,) if is_unclean else (),
        )
        if record is not None:
            records.append(record)
    return records
