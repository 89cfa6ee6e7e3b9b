"""Mutants of the generator that nothing can tell from the right rules, and why."""

from collections.abc import Mapping
from typing import Final

EQUIVALENT: Final[Mapping[str, str]] = {
    "raft_log.RaftLog.delete_before/bound-3": "the entry that is left out here is put back by the next lines: its epoch begins where the log does",
    "raft_log.RaftLog.delete_before/bound-4": "an epoch that begins where the log does stands there twice, and every look-up finds the same",
    "raft_log.RaftLog.delete_before/either-1": "as bound-4 and bound-5: between two snapshots there are records, so that the epoch is always known",
    "raft_log.RaftLog.delete_before/bound-5": "where a log without records begins, its snapshot says the same epoch",
    "following._learn_high_watermark/bound-1": "the quorum passes over a high watermark that is no news",
    "following._append/left-out-6": "only brokers need not flush, and how far a log is durable is asked of leaders and of those who must",
    "following._truncate/both-1": "the log asserts the same two things one line below: whoever would cut what is committed ends in either case",
    "log.PartitionLog.flush/bound-1": "the segments that are looked at then have been flushed, and are passed over two lines below",
    "log.PartitionLog.flush/bound-2": "a segment that was flushed to its end is flushed once more, which changes nothing",
    "snapshot_files.SnapshotFiles._name/left-out-3": "what is still open under this name is another copy of the same snapshot",
    "snapshot_files.SnapshotFiles._name/swapped-2": "two files are closed, whichever is first",
    "snapshot_files.SnapshotFiles._name/swapped-3": "what is still open under this name is another copy of the same snapshot",
    "manager.ProducerStateManager._check_sequence/bound-3": "equal epochs have returned three lines above: only lower ones come here",
}
