"""What becomes of partitions when a broker, or one of its directories, comes or goes.

Only the partitions that the broker is in sync with, or those without a leader, are looked at.   Source: KIP-631,
ReplicationControlManager.generateLeaderAndIsrUpdates.
"""

from collections.abc import Iterable

from kraftsim.core.metadata.partition_change import PartitionTarget
from kraftsim.core.metadata.replication_view import NO_BROKER, ReplicationView
from kraftsim.core.metadata.topic_table import PartitionKey
from protocol.metadata.m05_partition_change import PartitionChangeRecord


def departure_records(view: ReplicationView, broker_id: int) -> list[PartitionChangeRecord]:
    """Return the changes with which a broker loses every leadership, and its place in every ISR that it is not the last member of."""
    return membership_records(view, view.topics.with_isr_member(broker_id), leaving=broker_id)


def unregistration_records(view: ReplicationView, broker_id: int) -> list[PartitionChangeRecord]:
    """Return the changes with which a broker that is no member any more loses what it has; it may have left some ISRs before."""
    return [*departure_records(view, broker_id), *membership_records(view, view.topics.with_eligible_leader(broker_id), leaving=broker_id)]


def shutdown_records(view: ReplicationView, broker_id: int, *, is_clean: bool) -> list[PartitionChangeRecord]:
    """Return the changes with which a broker loses what its former incarnation had: after an unclean end it is eligible for nothing (KIP-966)."""
    if is_clean or not view.features.has_eligible_leaders:
        return departure_records(view, broker_id)
    in_sync, eligible = view.topics.with_isr_member(broker_id), view.topics.with_eligible_leader(broker_id)
    return membership_records(view, [*in_sync, *eligible], leaving=broker_id, is_unclean=True)


def arrival_records(view: ReplicationView, broker_id: int) -> list[PartitionChangeRecord]:
    """Return the changes with which leaderless partitions get a leader now that a broker may lead, although it is still fenced."""
    return membership_records(view, view.topics.leaderless(), arriving=broker_id)


def membership_records(
    view: ReplicationView, keys: Iterable[PartitionKey], *, leaving: int = NO_BROKER, arriving: int = NO_BROKER, is_unclean: bool = False
) -> list[PartitionChangeRecord]:
    """Return the changes of some partitions when one broker leaves their ISR and leads no more, or one may lead from now on."""

    def is_active(broker_id: int) -> bool:
        return broker_id != leaving and (broker_id == arriving or view.cluster.is_active(broker_id))

    election_of = view.elections()
    records = []
    for key in keys:
        topic, partition = view.topics.topic(key[0]), view.topics.partition(key)
        assert topic is not None and partition is not None, "the indexes know only what is there"
        target = PartitionTarget(isr=tuple(replica for replica in partition.isr if replica != leaving))
        record = view.change(key, partition, target, election_of(topic.name), is_active, (leaving,) if is_unclean else ())
        if record is not None:
            records.append(record)
    return records
