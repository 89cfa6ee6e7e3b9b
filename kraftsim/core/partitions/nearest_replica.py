"""The preferred read replica of a consumer: one in its own rack that has the offset.

Source: KIP-392, org.apache.kafka.common.replica.RackAwareReplicaSelector,
kafka.server.ReplicaManager.findPreferredReadReplica.
"""

from collections.abc import Callable

from kraftsim.core.partitions.leader_state import LeaderState

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def nearest_replica(
    leader_state: LeaderState,
    *,
    own_rack: str | None,
    client_rack: str,
    rack_of: Callable[[int], str | None],
    fetch_offset: int,
    now_ms: int,
) -> int | None:
    """Return the follower that a consumer should read from; None for the leader.

    Only in-sync followers with the offset are candidates: the one with the highest end offset, then
    the one caught up last, then the one with the highest id.
    """
    if not client_rack or own_rack == client_rack:
        return None
    near = [
        (follower.log_end_offset, follower.caught_up_ms - now_ms, replica_id)
        for replica_id, follower in leader_state.followers.items()
        if replica_id in leader_state.in_sync
        and follower.log_start_offset <= fetch_offset <= follower.log_end_offset
        and rack_of(replica_id) == client_rack
    ]
    return max(near)[2] if near else None
