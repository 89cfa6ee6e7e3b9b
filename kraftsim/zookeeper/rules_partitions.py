"""What a ZooKeeper-mode controller decides otherwise than a KRaft controller: partition leaders and
ISRs, one write of the state znode at a time, and the creation of topics.

The removal of a replica bumps the leader epoch each time, the first in-sync replica becomes leader,
a leader that shuts down is replaced before it stops, and a request for another ISR is not checked
for the leader epoch.
Source: kafka.controller.{PartitionStateMachine, ReplicaStateMachine, Election, ReplicaAssignment,
KafkaController} of 2.3 to 3.9.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.metadata.rules_controller_state import ControllerState
from kraftsim.metadata.rules_registrations import PartitionRegistration, partition_record
from kraftsim.metadata.rules_registries import Registries
from kraftsim.metadata.rules_topic_names import why_name_is_invalid
from kraftsim.metadata.rules_topic_table import RandomSource, Topic, place_replicas
from kraftsim.metadata.rules_topics import NewTopic, RefusedTopic, is_proper_topic_id
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import BROKER_DEFAULT, CreatableTopic
from protocol.messages.k37_create_partitions import CreatePartitionsTopic
from protocol.metadata.topics import NO_LEADER, RECOVERED, RECOVERING, PartitionRecord, TopicRecord
from protocol.schema import Message

MayLead = Callable[[int], bool]
NOT_MADE: Final = -1


# --------------------------------------------------------------------------------------------------
# Leaders and ISRs: each function returns the partition after one write


@dataclass(frozen=True, slots=True, kw_only=True)
class ZnodeAssignment:
    """The replicas of a partition during a reassignment, the target first, with the adding and
    removing ones.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def is_moving(self) -> bool:
        """Whether any replica is being added or removed."""
        return bool(self.adding or self.removing)

    def moved_to(self, target: Sequence[int]) -> "ZnodeAssignment":
        """Return the reassignment from the origin of the current one to a target."""
        full = tuple(dict.fromkeys((*target, *self.origin)))
        return ZnodeAssignment(
            replicas=full,
            adding=tuple(replica for replica in full if replica not in self.origin),
            removing=tuple(replica for replica in full if replica not in target),
        )


def assignment_of(partition: PartitionRegistration) -> ZnodeAssignment:
    """Return the assignment of a partition."""
    return ZnodeAssignment(
        replicas=partition.replicas,
        adding=partition.adding_replicas,
        removing=partition.removing_replicas,
    )


def assigned(
    partition: PartitionRegistration, assignment: ZnodeAssignment
) -> PartitionRegistration:
    """Return a partition with other replicas. Its state znode is unchanged."""
    return replace(
        partition,
        replicas=assignment.replicas,
        adding_replicas=assignment.adding,
        removing_replicas=assignment.removing,
        directories=(bytes(16),) * len(assignment.replicas),
    )


def led_by(
    partition: PartitionRegistration,
    leader: int,
    isr: Sequence[int],
    *,
    leader_recovery_state: int | None = None,
) -> PartitionRegistration:
    """Return a partition with the next leader epoch, the first one being 0."""
    return replace(
        partition,
        leader=leader,
        isr=tuple(isr),
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
        leader_recovery_state=partition.leader_recovery_state
        if leader_recovery_state is None
        else leader_recovery_state,
    )


def renewed(partition: PartitionRegistration) -> PartitionRegistration:
    """Return a partition with the next leader epoch and nothing else changed, so that its replicas
    apply the new assignment.
    """
    return led_by(partition, partition.leader, partition.isr)


def in_sync_with(
    partition: PartitionRegistration, leader: int, isr: Sequence[int], leader_recovery_state: int
) -> PartitionRegistration:
    """Return a partition with another ISR, in the same leader epoch, as requested by its leader."""
    return replace(
        partition,
        leader=leader,
        isr=tuple(isr),
        leader_recovery_state=leader_recovery_state,
        partition_epoch=partition.partition_epoch + 1,
    )


def elected_first(
    partition: PartitionRegistration, is_online: MayLead
) -> PartitionRegistration | None:
    """Return a new partition with its first leader: the ISR are all live replicas.

    None without any.
    """
    assert partition.partition_epoch == NOT_MADE, "a partition is initialized once"
    online = [replica for replica in partition.replicas if is_online(replica)]
    return led_by(partition, online[0], online, leader_recovery_state=RECOVERED) if online else None


def elected_offline(
    partition: PartitionRegistration,
    is_online: MayLead,
    *,
    allows_unclean: bool,
    marks_recovery: bool,
) -> PartitionRegistration | None:
    """Return a partition whose leader has failed, with the first live in-sync replica as leader, or
    with unclean election the first live one.

    None if there is none.
    """
    online = [replica for replica in partition.replicas if is_online(replica)]
    leader = next((replica for replica in online if replica in partition.isr), None)
    if leader is not None:
        return led_by(
            partition, leader, [replica for replica in partition.isr if is_online(replica)]
        )
    if not online or not allows_unclean:
        return None
    return led_by(
        partition,
        online[0],
        online[:1],
        leader_recovery_state=RECOVERING if marks_recovery else None,
    )


def elected_of(
    partition: PartitionRegistration, candidates: Sequence[int], is_online: MayLead
) -> PartitionRegistration | None:
    """Return a partition whose leader is the first live in-sync candidate; None if there is
    none.
    """
    leader = next(
        (replica for replica in candidates if is_online(replica) and replica in partition.isr), None
    )
    return None if leader is None else led_by(partition, leader, partition.isr)


def elected_for_shutdown(
    partition: PartitionRegistration, is_there: MayLead, is_leaving: MayLead
) -> PartitionRegistration | None:
    """Return a partition without the brokers in controlled shutdown; None if there is no other
    leader.

    `is_there` includes them.
    """
    leader = next(
        (
            each
            for each in partition.replicas
            if is_there(each) and each in partition.isr and not is_leaving(each)
        ),
        None,
    )
    return (
        None
        if leader is None
        else led_by(
            partition, leader, [replica for replica in partition.isr if not is_leaving(replica)]
        )
    )


def without(partition: PartitionRegistration, replica: int) -> PartitionRegistration | None:
    """Return a partition with a replica removed from the ISR, unless it is the last one, and from
    leadership.

    None if it was not in sync.
    """
    if replica not in partition.isr:
        return None
    isr = (
        partition.isr
        if len(partition.isr) == 1
        else tuple(each for each in partition.isr if each != replica)
    )
    return led_by(partition, NO_LEADER if replica == partition.leader else partition.leader, isr)


# --------------------------------------------------------------------------------------------------
# A controller's state with the interface of an image (`MetadataFacts`), so that both are written to
# znodes by the same code


class StateView:
    """A live view of a state."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state

    @property
    def registries(self) -> Registries:
        """Quotas, credentials, tokens, ACLs."""
        return self._state.registries

    @property
    def next_producer_id(self) -> int | None:
        """The first producer id that is not allocated; None if none was."""
        return self._state.producer_ids.next_producer_id or None

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """Return a topic by its id, or None."""
        return self._state.replication.topics.topic(topic_id)

    def topics(self) -> Iterator[Topic]:
        """Yield every topic, by name."""
        return self._state.replication.topics.topics()

    def configs_of(self, resource_type: int, resource_name: str) -> Mapping[str, str]:
        """Return the values set on a resource itself."""
        return self._state.configs.configs_of(resource_type, resource_name)

    def configs(self) -> Iterator[tuple[tuple[int, str], Mapping[str, str]]]:
        """Yield the values of every resource with any, by resource."""
        return (
            (resource, self.configs_of(*resource)) for resource in self._state.configs.resources()
        )


# --------------------------------------------------------------------------------------------------
# Topics and partitions: validation and creation
#
# The broker that handles the request reads znodes only: a partition without a live replica is
# created anyway, and comes online with the first replica. The error messages are Kafka's.
# Source: kafka.server.ZkAdminManager, kafka.zk.AdminZkClient, org.apache.kafka.admin.AdminUtils.

ID_BYTES = 16
Placement = Mapping[int, Sequence[int]]
"""The replicas of partitions by number."""


def decide_topic(
    state: ControllerState,
    asked: CreatableTopic,
    rng: RandomSource,
    *,
    default_partitions: int,
    default_factor: int,
    partitions_max: int,
) -> tuple[NewTopic, list[Message]] | RefusedTopic:
    """Create a topic.

    `partitions_max` bounds the request, which may ask for 2,147,483,647 partitions in a few bytes.
    """
    proposed = _proposed(state, asked, rng, default_partitions, default_factor, partitions_max)
    return (
        RefusedTopic(name=asked.name, refusal=proposed)
        if isinstance(proposed, Refusal)
        else proposed
    )


def decide_more_partitions(
    state: ControllerState, asked: CreatePartitionsTopic, rng: RandomSource, partitions_max: int
) -> list[Message] | Refusal:
    """Add partitions to a topic, up to a maximum."""
    topic = state.replication.topics.topic_named(asked.name)
    if topic is None:
        return Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{asked.name}' does not exist."
        )
    if any(partition.is_reassigning for partition in topic.partitions.values()):
        return Refusal(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"A partition reassignment is in progress for the topic '{asked.name}'.",
        )
    present = len(topic.partitions)
    added = asked.count - present
    if added < 0:
        why = (
            f"Topic currently has {present} partitions, which is higher than the requested "
            f"{asked.count}."
        )
        return Refusal(ErrorCode.INVALID_PARTITIONS, why)
    if not added:
        return Refusal(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partitions.")
    if asked.assignments is not None:
        by_hand = [row.broker_ids for row in asked.assignments]
        refusal = _refuse_rows(state, topic, by_hand, added)
        if refusal is not None:
            return refusal
        placement: Placement | Refusal = dict(enumerate(by_hand, start=present))
    else:
        placement = _placed(
            state, added, len(topic.partitions[0].replicas), rng, partitions_max, first=present
        )
    return (
        placement
        if isinstance(placement, Refusal)
        else list(_partitions(state, topic.topic_id, placement))
    )


def _proposed(
    state: ControllerState,
    asked: CreatableTopic,
    rng: RandomSource,
    default_partitions: int,
    default_factor: int,
    partitions_max: int,
) -> tuple[NewTopic, list[Message]] | Refusal:
    topics = state.replication.topics
    if topics.topic_named(asked.name) is not None:
        return Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{asked.name}' already exists.")
    without_value = [config.name for config in asked.configs if config.value is None]
    if without_value:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Null value not supported for topic configs: {','.join(without_value)}",
        )
    placement = _placement(state, asked, rng, default_partitions, default_factor, partitions_max)
    if isinstance(placement, Refusal):
        return placement
    why = why_name_is_invalid(asked.name)
    if why is not None:
        return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
    collision = topics.colliding_name(asked.name)
    if collision is not None:
        return Refusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{asked.name}' collides with existing topics: {collision}",
        )
    refusal = _refuse_placement(placement)
    configs = (
        state.configs.decide_topic_configs(asked.name, asked.configs)
        if refusal is None
        else refusal
    )
    if isinstance(configs, Refusal):
        return configs
    topic_id = rng.randbytes(ID_BYTES)
    while not is_proper_topic_id(topic_id):
        topic_id = rng.randbytes(ID_BYTES)
    new_topic = NewTopic(
        name=asked.name,
        topic_id=topic_id,
        partition_count=len(placement),
        replication_factor=len(placement[0]),
        configs=tuple(
            state.configs.configs_of_new_topic(
                {record.name: record.value for record in configs if record.value is not None}
            )
        ),
    )
    return new_topic, [
        TopicRecord(name=asked.name, topic_id=topic_id),
        *configs,
        *_partitions(state, topic_id, placement),
    ]


def _placement(
    state: ControllerState,
    asked: CreatableTopic,
    rng: RandomSource,
    default_partitions: int,
    default_factor: int,
    partitions_max: int,
) -> Placement | Refusal:
    if asked.assignments:
        if asked.num_partitions != BROKER_DEFAULT or asked.replication_factor != BROKER_DEFAULT:
            why = (
                "Both numPartitions or replicationFactor and replicasAssignments were set. Both "
                "cannot be used at the same time."
            )
            return Refusal(ErrorCode.INVALID_REQUEST, why)
        return {row.partition_index: row.broker_ids for row in asked.assignments}
    count = default_partitions if asked.num_partitions == BROKER_DEFAULT else asked.num_partitions
    factor = (
        default_factor if asked.replication_factor == BROKER_DEFAULT else asked.replication_factor
    )
    return _placed(state, count, factor, rng, partitions_max)


def _refuse_placement(placement: Placement) -> Refusal | None:
    if len({len(replicas) for replicas in placement.values()}) != 1:
        return Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "All partitions should have the same number of replicas",
        )
    if any(len(set(replicas)) != len(replicas) for replicas in placement.values()):
        return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Duplicate replica assignment found")
    if sorted(placement) != list(range(len(placement))):
        return Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return None


def _refuse_rows(
    state: ControllerState, topic: Topic, rows: Sequence[Sequence[int]], added: int
) -> Refusal | None:
    unknown = dict.fromkeys(
        replica
        for replicas in rows
        for replica in replicas
        if state.cluster.broker(replica) is None
    )
    if unknown:
        return _invalid(f"Unknown broker(s) in replica assignment: {', '.join(map(str, unknown))}.")
    if len(rows) != added:
        return _invalid(
            f"Increasing the number of partitions by {added} but {len(rows)} assignments provided."
        )
    factor = len(topic.partitions[0].replicas)
    for number, replicas in enumerate(rows, start=len(topic.partitions)):
        if not replicas:
            return _invalid(f"Cannot have replication factor of 0 for partition id {number}.")
        if any(count > 1 for count in Counter(replicas).values()):
            return _invalid(
                "Duplicate brokers not allowed in replica assignment: "
                f"{', '.join(map(str, replicas))} for partition id {number}."
            )
    wrong = [
        (number, len(replicas))
        for number, replicas in enumerate(rows, start=len(topic.partitions))
        if len(replicas) != factor
    ]
    if wrong:
        numbers, factors = (", ".join(str(each[place]) for each in wrong) for place in (0, 1))
        return _invalid(
            f"Inconsistent replication factor between partitions, partition 0 has {factor} "
            f"while partitions [{numbers}] have replication factors [{factors}], respectively."
        )
    return None


def _placed(
    state: ControllerState,
    count: int,
    factor: int,
    rng: RandomSource,
    count_max: int,
    *,
    first: int = 0,
) -> Placement | Refusal:
    """Return the replicas of partitions: each starts one broker further, and its followers are at a
    distance that grows with each round.

    Brokers with racks are striped across them as in KRaft.
    """
    if count <= 0:
        return Refusal(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if factor <= 0:
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0."
        )
    brokers = list(state.cluster.brokers())
    if factor > len(brokers):
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {factor} larger than available brokers: {len(brokers)}.",
        )
    if count > count_max:
        return Refusal(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )
    if all(broker.rack is not None for broker in brokers):
        striped = place_replicas(count, factor, brokers, rng)
        return striped if isinstance(striped, Refusal) else dict(enumerate(striped, start=first))
    ids, begin, shift = (
        [broker.broker_id for broker in brokers],
        rng.randrange(len(brokers)),
        rng.randrange(len(brokers)),
    )
    found = {}
    for number in range(first, first + count):
        if number and number % len(ids) == 0:
            shift += 1
        leader = (number + begin) % len(ids)
        followers = (
            (leader + 1 + (shift + place) % (len(ids) - 1)) % len(ids)
            for place in range(factor - 1)
        )
        found[number] = [ids[leader], *(ids[follower] for follower in followers)]
    return found


def _partitions(
    state: ControllerState, topic_id: bytes, placement: Placement
) -> Iterable[PartitionRecord]:
    """Yield new partitions, with the first live replica as leader; without one the ISR is empty."""
    for number in sorted(placement):
        replicas = tuple(placement[number])
        isr = tuple(replica for replica in replicas if state.cluster.is_active(replica))
        partition = PartitionRegistration(
            replicas=replicas,
            directories=(bytes(ID_BYTES),) * len(replicas),
            isr=isr,
            removing_replicas=(),
            adding_replicas=(),
            leader=isr[0] if isr else NO_LEADER,
            leader_recovery_state=RECOVERED,
            leader_epoch=0 if isr else NOT_MADE,
            partition_epoch=0 if isr else NOT_MADE,
        )
        yield partition_record(topic_id, number, partition, state.features.metadata_level)


def _invalid(why: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
