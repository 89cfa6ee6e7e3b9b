"""Producer snapshots of brokers before 2.8: only those of the last two segments are kept.

Such a broker leaves most segments without snapshots, which are missing only when the segments are
copied to remote storage.
Source: KAFKA-9393; kafka.log.ProducerStateManager.deleteSnapshotsBefore,
Log.deleteSnapshotsAfterRecoveryPointCheckpoint of 2.7.
"""

from kraftsim.partitions.producer_snapshots import ProducerSnapshots
from kraftsim.producer_state.rules_manager import ProducerStateManager

KEPT = 2


class NewestSnapshots(ProducerSnapshots):
    """Deletes older snapshots whenever one is taken."""

    def take(self, state: ProducerStateManager, offset: int, *, is_replaced: bool = False) -> bool:
        """Write the state, and delete all but the last two."""
        is_taken = super().take(state, offset, is_replaced=is_replaced)
        self.remove_at(self.offsets[:-KEPT])
        return is_taken
