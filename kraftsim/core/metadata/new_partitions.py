"""The records of new partitions, for CreateTopics and CreatePartitions.

Source: ReplicationControlManager.
"""

from collections.abc import Iterator

from kraftsim.core.decision import Refusal
from kraftsim.core.metadata.partition_registration import PartitionRegistration, partition_record
from kraftsim.core.metadata.replica_placement import Placement
from kraftsim.core.metadata.replication_view import ReplicationView
from protocol.errors import ErrorCode
from protocol.metadata.m03_partition import RECOVERED, PartitionRecord

FIRST_EPOCH = 0


def refuse_unled(view: ReplicationView, placement: Placement) -> Refusal | None:
    """Return the error of a placement without an active replica: brokers in controlled shutdown
    under a former controller count as usable.
    """
    if all(view.active_of(replicas) for replicas in placement):
        return None
    why = (
        f"Unable to replicate the partition {len(placement[0])} time(s): All brokers are "
        "currently fenced or in controlled shutdown."
    )
    return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, why)


def partition_records(
    view: ReplicationView, topic_id: bytes, placement: Placement, first_partition: int = 0
) -> Iterator[PartitionRecord]:
    """Yield the records of partitions from a number on: the leader is the first active replica, the
    ISR are all active replicas.
    """
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
