"""Producer snapshots as brokers before 2.8 kept them: of all segments but the last two they are deleted again.

What such a broker leaves behind has no snapshots for most of its segments, which nobody misses until they are to go to a remote store.
Source: KAFKA-9393; kafka.log.ProducerStateManager.deleteSnapshotsBefore, Log.deleteSnapshotsAfterRecoveryPointCheckpoint of 2.7.
"""

from kraftsim.core.producer_state.manager import ProducerStateManager
from kraftsim.node.producer_snapshots import ProducerSnapshots

KEPT = 2


class NewestSnapshots(ProducerSnapshots):
    """Forgets the older ones whenever one is taken."""

    def take(self, state: ProducerStateManager, offset: int, *, is_anew: bool = False) -> bool:
        """Write the state, and delete all but the last two."""
        is_taken = super().take(state, offset, is_anew=is_anew)
        self.remove_at(self.offsets[:-KEPT])
        return is_taken
