"""A snapshot is named after the last offset that it contains, instead of the first one that it does
not contain.

A node that loads it replays the last record a second time from the log.

Source: KAFKA-14618, org.apache.kafka.image.MetadataProvenance.snapshotId.
"""

from kraftsim.lab.bugs.bug import Bug
from kraftsim.raft.rules_log import SnapshotId
from kraftsim.raft.snapshotting import Snapshotting
from protocol.records.batches import RecordBatch


class NamesLastOffset(Snapshotting):
    """Confuses the inclusive with the exclusive end offset."""

    def _id_behind(self, last: RecordBatch) -> SnapshotId:
        return SnapshotId(last.last_offset, last.partition_leader_epoch)  # right: last.next_offset


BUG = Bug(
    name="KAFKA-14618",
    title="a snapshot named after its last offset",
    fixed_in=("3.4.0", "3.5.0"),
    swap=lambda parts: parts.replacing(snapshotting=NamesLastOffset),
    scenario="quorum_under_faults",
    caught_by=("snapshot-equals-log", "nodes-believe-the-truth", "metadata-log-matching"),
)
