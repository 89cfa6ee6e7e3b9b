"""Generated mutants that are equivalent to the original code, and why."""

from collections.abc import Mapping
from typing import Final

EQUIVALENT: Final[Mapping[str, str]] = {
    "rules_log.RaftLog.delete_before/bound-3": (
        "the entry that is omitted here is added by the next lines: its epoch starts where the "
        "log does"
    ),
    "rules_log.RaftLog.delete_before/bound-4": (
        "an epoch that starts where the log does is there twice, and every lookup finds the same"
    ),
    "rules_log.RaftLog.delete_before/either-1": (
        "as bound-4 and bound-5: there are records between two snapshots, so that the epoch is "
        "always known"
    ),
    "rules_log.RaftLog.delete_before/bound-5": (
        "at the start of a log without records, its snapshot has the same epoch"
    ),
    "rules_following._learn_high_watermark/bound-1": (
        "the quorum ignores an unchanged high watermark"
    ),
    "rules_following._append/left-out-6": (
        "only brokers need not flush, and the flushed end matters only for leaders and nodes "
        "that must flush"
    ),
    "rules_following._truncate/both-1": (
        "the log asserts the same two conditions one line below: a truncation of committed "
        "records fails in either case"
    ),
    "log.PartitionLog.flush/bound-1": (
        "the additional segments have been flushed, and are skipped two lines below"
    ),
    "log.PartitionLog.flush/bound-2": (
        "a segment that was flushed to its end is flushed once more, which changes nothing"
    ),
    "metadata_store.SnapshotFiles._name/left-out-3": (
        "the file that is still open under this name is the same snapshot"
    ),
    "metadata_store.SnapshotFiles._name/swapped-2": "two files are closed, whichever is first",
    "metadata_store.SnapshotFiles._name/swapped-3": (
        "the file that is still open under this name is the same snapshot"
    ),
    "rules_manager.ProducerStateManager._check_sequence/bound-3": (
        "equal epochs have returned three lines above: only lower ones remain here"
    ),
}
