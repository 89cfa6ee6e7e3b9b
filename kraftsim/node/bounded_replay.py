"""Producer state is read back from the segments that matter only: what is older than producer.id.expiration.ms names nobody who is not forgotten.

The proposal of empty producer snapshots calls it the ideal solution where all snapshots are lost: recovery begins with the oldest segment that has a
record of that period. Whoever wrote before that, and not since, has expired; but for who has a transaction open, whom nothing makes expire.
Source: KAFKA-15195 (the ideal solution of the proposal, which was never built).
"""

from kraftsim.core.producer_state.manager import ProducerStateManager
from kraftsim.node.log import PartitionLog
from kraftsim.node.producer_snapshots import ProducerSnapshots


class BoundedReplay(ProducerSnapshots):
    """Reads no segment without a record that is younger than that."""

    def first_to_replay(self, state: ProducerStateManager, log: PartitionLog, covered: int) -> int:
        """Begin at the oldest segment that matters, unless a snapshot covers more."""
        oldest_ms = self._world.clock.wall_ms() - state.expiration_ms
        young = (each.base_offset for each in log.segments if each.max_timestamp > oldest_ms)
        return max(covered, next(young, log.base_offsets[-1]))

    def are_from_an_upgrade(self, *, was_stopped_cleanly: bool) -> bool:
        """Tell that a log without snapshots has lost them: it is read, whatever it was closed by."""
        return False
