"""Restores producer state by replaying only the segments that can matter: producers in segments
older than producer.id.expiration.ms have expired.

The proposal of empty producer snapshots calls it the ideal solution where all snapshots are lost:
recovery starts at the oldest segment with a record of that period. A producer without a record
since then has expired, unless it has an open transaction, which never expires.
Source: KAFKA-15195 (the ideal solution of the proposal, which was never implemented).
"""

from kraftsim.partitions.log import PartitionLog
from kraftsim.partitions.producer_snapshots import ProducerSnapshots
from kraftsim.producer_state.rules_manager import ProducerStateManager


class BoundedReplay(ProducerSnapshots):
    """Skips segments without a record younger than the expiration."""

    def first_to_replay(self, state: ProducerStateManager, log: PartitionLog, covered: int) -> int:
        """Start at the oldest relevant segment, unless a snapshot covers more."""
        oldest_ms = self._world.clock.wall_ms() - state.expiration_ms
        young = (each.base_offset for each in log.segments if each.max_timestamp > oldest_ms)
        return max(covered, next(young, log.base_offsets[-1]))

    def are_from_an_upgrade(self, *, was_stopped_cleanly: bool) -> bool:
        """Return False: a log without snapshots has lost them and is replayed, even after a clean
        shutdown.
        """
        return False
