"""Validation of manual replica assignments.
Source: ReplicationControlManager.validateManualPartitionAssignment.

The error messages are Kafka's, because clients show them.
"""

from collections.abc import Sequence

from kraftsim.core.decision import Refusal
from kraftsim.core.metadata.cluster_control import ClusterControl
from protocol.errors import ErrorCode


def refuse_assignment(
    replicas: Sequence[int], cluster: ClusterControl, expected_count: int | None = None
) -> Refusal | None:
    """Return the error of a replica list. Fails with INVALID_REPLICA_ASSIGNMENT.

    expected_count: the replication factor of the topic's other partitions, if it matters.
    """
    if not replicas:
        return _refused("The manual partition assignment includes an empty replica list.")
    ordered = sorted(replicas)
    for index, replica in enumerate(ordered):
        broker = cluster.broker(replica)
        if broker is None:
            return _refused(
                f"The manual partition assignment includes broker {replica}, but no such broker "
                "is registered."
            )
        if not broker.takes_partitions:
            return _refused(
                f"The manual partition assignment includes broker {replica}, but all its log "
                "directories are cordoned."
            )
        if index and replica == ordered[index - 1]:
            return _refused(
                f"The manual partition assignment includes the broker {replica} more than once."
            )
    if expected_count is not None and len(replicas) != expected_count:
        return _refused(
            f"The manual partition assignment includes a partition with {len(replicas)} "
            "replica(s), but this is not consistent with previous partitions, which have "
            f"{expected_count} replica(s)."
        )
    return None


def refuse_inactive(partition_id: int) -> Refusal:
    """Return the error of a partition without an active replica."""
    return _refused(
        f"All brokers specified in the manual partition assignment for partition {partition_id} "
        "are fenced or in controlled shutdown."
    )


def _refused(why: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
