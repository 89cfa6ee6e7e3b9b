"""The partition changes when a broker or one of its log directories becomes available or
unavailable.

Only partitions with the broker in their ISR, or without a leader, are visited.   Source: KIP-631,
ReplicationControlManager.generateLeaderAndIsrUpdates.
"""

from collections.abc import Iterable

from kraftsim.core.metadata.partition_change import PartitionTarget
from kraftsim.core.metadata.replication_view import NO_BROKER, ReplicationView
from kraftsim.core.metadata.topic_table import PartitionKey
from protocol.metadata.m05_partition_change import PartitionChangeRecord


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
