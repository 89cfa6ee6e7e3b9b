"""A broker that finds no producer snapshot beside a log believes that it was upgraded, and begins without producers, even after a crash.

The broker crashes before its first snapshot. It comes back, leads again, and knows nobody: a batch whose answer was lost is sent again, and appended
again.

Source: KAFKA-5435, fixed by skipping the scan only after a clean shutdown (kafka.log.Log.loadProducerState).
"""

from kraftsim.bugs.bug import Bug
from kraftsim.node.producer_snapshots import ProducerSnapshots


class BelievesInUpgrades(ProducerSnapshots):
    """Does not ask how the broker was stopped."""

    def are_from_an_upgrade(self, *, was_stopped_cleanly: bool) -> bool:
        """Take every log without a snapshot for one from before there were snapshots."""
        return super().are_from_an_upgrade(was_stopped_cleanly=True)  # right: a crash before the first snapshot is no upgrade


BUG = Bug(
    name="KAFKA-5435",
    title="a log without producer snapshot begins without producers after a crash",
    fixed_in=("0.11.0.0", "1.0.0"),
    swap=lambda parts: parts.replacing(producer_snapshots=BelievesInUpgrades),
    story="answers_get_lost",
    caught_by=("one-append-per-sequence", "records-in-final-log-once"),
)
