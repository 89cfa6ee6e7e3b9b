"""A broker without a producer snapshot for a log assumes an upgrade, and starts with empty producer
state, even after a crash.

The broker crashes before its first snapshot. After the restart it is leader again without producer
state: a batch whose response was lost is retried, and appended again.

Source: KAFKA-5435, fixed by skipping the scan only after a clean shutdown
(kafka.log.Log.loadProducerState).
"""

from kraftsim.lab.bugs.bug import Bug
from kraftsim.partitions.producer_snapshots import ProducerSnapshots


class AssumesUpgrade(ProducerSnapshots):
    """Ignores whether the shutdown was clean."""

    def are_from_an_upgrade(self, *, was_stopped_cleanly: bool) -> bool:
        """Treat every log without a snapshot as one that was written before snapshots existed."""
        return super().are_from_an_upgrade(
            was_stopped_cleanly=True
        )  # right: a crash before the first snapshot is no upgrade


BUG = Bug(
    name="KAFKA-5435",
    title="a log without a producer snapshot starts with empty producer state after a crash",
    fixed_in=("0.11.0.0", "1.0.0"),
    swap=lambda parts: parts.replacing(producer_snapshots=AssumesUpgrade),
    scenario="lost_produce_responses",
    caught_by=("one-append-per-sequence", "records-in-final-log-once"),
)
