"""What the controller remembers of the replicas that fetch its log: the high watermark that each was last told.

Soft state: after a restart everybody is told again.   Source: org.apache.kafka.raft.LeaderState.ReplicaState (the observers), KIP-1166.
"""

REPLICAS_MAX = 1000
"""Anybody can claim any id: the one that was quiet for the longest time is forgotten first."""


class Replicas:
    """Replica id -> high watermark. Readers without an id (below 0) are not remembered, as in Kafka."""

    def __init__(self) -> None:
        self._told: dict[int, int] = {}

    def has_news(self, replica_id: int, high_watermark: int | None) -> bool:
        """Tell whether the high watermark is one that this replica does not know."""
        return replica_id >= 0 and high_watermark is not None and self._told.get(replica_id) != high_watermark

    def tell(self, replica_id: int, high_watermark: int | None) -> None:
        """Remember what a replica is being told."""
        if replica_id < 0 or high_watermark is None:
            return
        self._told.pop(replica_id, None)
        self._told[replica_id] = high_watermark
        if len(self._told) > REPLICAS_MAX:
            del self._told[next(iter(self._told))]
