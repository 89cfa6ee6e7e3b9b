"""The records of partitions that come into being, for CreateTopics and CreatePartitions.   Source: ReplicationControlManager."""

from collections.abc import Iterator

from kraftsim.core.metadata.partition_registration import PartitionRegistration, partition_record
from kraftsim.core.metadata.replica_placement import Placement
from kraftsim.core.metadata.replication_view import ReplicationView
from protocol.metadata.m03_partition import RECOVERED, PartitionRecord

FIRST_EPOCH = 0


def partition_records(view: ReplicationView, topic_id: bytes, placement: Placement, first_partition: int = 0) -> Iterator[PartitionRecord]:
    """Yield the records of partitions from a number on: led by the first replica in service, in sync with all that are."""
    level = view.level
    for partition_id, replicas in enumerate(placement, start=first_partition):
        isr = view.active_of(replicas)
        partition = PartitionRegistration(
            replicas=replicas,
            directories=tuple(view.default_directory(replica) for replica in replicas),
            isr=isr,
            removing_replicas=(),
            adding_replicas=(),
            leader=isr[0],
            leader_recovery_state=RECOVERED,
            leader_epoch=FIRST_EPOCH,
            partition_epoch=FIRST_EPOCH,
        )
        yield partition_record(topic_id, partition_id, partition, level)
