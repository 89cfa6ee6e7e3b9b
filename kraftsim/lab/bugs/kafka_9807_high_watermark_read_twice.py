"""The last stable offset is computed from two reads of the high watermark, which may advance past
an open transaction in between.

The first read finds no open transaction below it, the second one is returned: read_committed
consumers see undecided records.

Source: KAFKA-9807, fixed by reading once (UnifiedLog.fetchLastStableOffsetMetadata).
"""

from kraftsim.lab.bugs.bug import Bug
from kraftsim.partitions.rules_replica import PartitionReplica


class ReadsTwice(PartitionReplica):
    """Compares with the high watermark that was read earlier, and returns the current one."""

    __slots__ = ("_read_before",)

    _read_before: int

    @property
    def last_stable_offset(self) -> int:
        """The end offset for read_committed consumers."""
        before, now = getattr(self, "_read_before", self.high_watermark), self.high_watermark
        self._read_before = now
        unstable = self.producer_state.first_unstable_offset
        return (
            now if unstable is None or unstable >= before else max(unstable, self.log_start_offset)
        )  # right: compare with `now`


BUG = Bug(
    name="KAFKA-9807",
    title="the last stable offset is computed from two reads of the high watermark",
    fixed_in=("2.5.0", "2.6.0"),
    swap=lambda parts: parts.replacing(partition_replica=ReadsTwice),
    scenario="exactly_once_under_faults",
    caught_by=("last-stable-offset-before-open-transactions", "read-committed-isolation"),
)
