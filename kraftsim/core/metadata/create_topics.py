"""Whether a topic can be made as asked, and on which brokers its partitions go.

The sentences are Kafka's own, because clients show them to people. Partitions have one replica for now; more are refused and said to be.
Source: ReplicationControlManager.createTopic, StripedReplicaPlacer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.core.metadata.broker_registration import BrokerRegistration
from kraftsim.core.metadata.topic_names import METADATA_TOPIC, colliding_name, why_name_is_invalid
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import BROKER_DEFAULT, CreatableReplicaAssignment, CreatableTopic

REPLICATION_FACTOR_BUILT: Final = 1

Placement = Sequence[tuple[int, ...]]
"""The replicas of each partition, by partition number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    """num.partitions and default.replication.factor, for requests that say -1."""

    num_partitions: int = 1
    replication_factor: int = 1


def refuse_name(name: str, existing: Iterable[str]) -> Refusal | None:
    """Return why a topic cannot be called so. Refuses with INVALID_TOPIC_EXCEPTION, INVALID_REQUEST or TOPIC_ALREADY_EXISTS."""
    names = list(existing)
    why = why_name_is_invalid(name)
    if why is not None:
        return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
    if name == METADATA_TOPIC:
        return Refusal(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited.")
    if name in names:
        return Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    collision = colliding_name(name, names)
    if collision is not None:
        return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {collision}")
    return None


def decide_placement(
    topic: CreatableTopic, brokers: Mapping[int, BrokerRegistration], defaults: TopicDefaults, first_broker_index: int
) -> Placement | Refusal:
    """Return the replicas of each partition. `first_broker_index` is a drawn number: where the round through the brokers begins.

    Refuses with INVALID_REQUEST, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR or INVALID_PARTITIONS.
    """
    if topic.assignments:
        return _placement_by_hand(topic, brokers)
    if topic.replication_factor < BROKER_DEFAULT or topic.replication_factor == 0:
        return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0, or -1 to use the default value.")
    if topic.num_partitions < BROKER_DEFAULT or topic.num_partitions == 0:
        return Refusal(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    partition_count = defaults.num_partitions if topic.num_partitions == BROKER_DEFAULT else topic.num_partitions
    replication_factor = defaults.replication_factor if topic.replication_factor == BROKER_DEFAULT else topic.replication_factor
    why = _why_unplaceable(replication_factor, brokers)
    if why is not None:
        return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, f"Unable to replicate the partition {replication_factor} time(s): {why}")
    active = sorted(broker_id for broker_id, broker in brokers.items() if broker.is_active)
    return [(active[(first_broker_index + partition) % len(active)],) for partition in range(partition_count)]


def _why_unplaceable(replication_factor: int, brokers: Mapping[int, BrokerRegistration]) -> str | None:
    if replication_factor > len(brokers):
        return f"The target replication factor of {replication_factor} cannot be reached because only {len(brokers)} broker(s) are registered."
    if replication_factor > REPLICATION_FACTOR_BUILT:
        return f"kraftsim keeps {REPLICATION_FACTOR_BUILT} replica of a partition for now."
    if all(broker.fenced for broker in brokers.values()):
        return "All brokers are currently fenced."
    if not any(broker.is_active for broker in brokers.values()):
        return "All brokers are currently fenced or in controlled shutdown."
    return None


def _placement_by_hand(topic: CreatableTopic, brokers: Mapping[int, BrokerRegistration]) -> Placement | Refusal:
    if topic.replication_factor != BROKER_DEFAULT:
        return Refusal(ErrorCode.INVALID_REQUEST, "A manual partition assignment was specified, but replication factor was not set to -1.")
    if topic.num_partitions != BROKER_DEFAULT:
        return Refusal(ErrorCode.INVALID_REQUEST, "A manual partition assignment was specified, but numPartitions was not set to -1.")
    placement: dict[int, tuple[int, ...]] = {}
    for assignment in topic.assignments:
        why = _why_assignment_is_invalid(assignment, placement, brokers)
        if why is not None:
            return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
        placement[assignment.partition_index] = tuple(assignment.broker_ids)
    if sorted(placement) != list(range(len(placement))):
        return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence")
    if any(len(replicas) > REPLICATION_FACTOR_BUILT for replicas in placement.values()):
        why = f"kraftsim keeps {REPLICATION_FACTOR_BUILT} replica of a partition for now."
        return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, why)
    return [placement[partition] for partition in range(len(placement))]


def _why_assignment_is_invalid(
    assignment: CreatableReplicaAssignment, earlier: Mapping[int, tuple[int, ...]], brokers: Mapping[int, BrokerRegistration]
) -> str | None:
    partition, replicas = assignment.partition_index, assignment.broker_ids
    if partition in earlier:
        return f"Found multiple manual partition assignments for partition {partition}"
    if not replicas:
        return "The manual partition assignment includes an empty replica list."
    twice = next((replica for replica in sorted(replicas) if replicas.count(replica) > 1), None)
    if twice is not None:
        return f"The manual partition assignment includes the broker {twice} more than once."
    unknown = next((replica for replica in sorted(replicas) if replica not in brokers), None)
    if unknown is not None:
        return f"The manual partition assignment includes broker {unknown}, but no such broker is registered."
    expected_count = next((len(others) for others in earlier.values()), len(replicas))
    if len(replicas) != expected_count:
        return f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not consistent with previous \
partitions, which have {expected_count} replica(s)."
    if not any(brokers[replica].is_active for replica in replicas):
        return f"All brokers specified in the manual partition assignment for partition {partition} are fenced or in controlled shutdown."
    return None
