"""A broker that finds no producer snapshot beside a log believes that it was upgraded, and begins without producers, even after a crash.

The broker crashes before its first snapshot. It comes back, leads again, and knows nobody: a batch whose answer was lost is sent again, and appended
again.

Source: KAFKA-5435, fixed by skipping the scan only after a clean shutdown (kafka.log.Log.loadProducerState).
"""

from kraftsim.bugs.bug import Bug
from kraftsim.core.producer_state.manager import ProducerStateManager
from kraftsim.node.log import PartitionLog
from kraftsim.node.producer_snapshots import ProducerSnapshots


class BelievesInUpgrades(ProducerSnapshots):
    """Does not read the log where there is no snapshot."""

    def rebuild(self, state: ProducerStateManager, log: PartitionLog) -> None:
        """Begin empty if there is no snapshot, whatever the log says."""
        if self.offsets:
            super().rebuild(state, log)
        else:
            self.begin_empty(state, log)  # right: the whole log is read


BUG = Bug(
    name="KAFKA-5435",
    title="a log without producer snapshot begins without producers after a crash",
    fixed_in=("0.11.0.0", "1.0.0"),
    swap=lambda parts: parts.replacing(producer_snapshots=BelievesInUpgrades),
    caught_by=("one-append-per-sequence", "records-in-final-log-once"),
)
