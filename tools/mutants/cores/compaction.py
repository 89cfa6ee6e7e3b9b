"""Compaction, and readers of compacted logs: the last record of a key is lost, or replaced by one
that was never committed.
"""

from tools.mutants.mutant import Core, Mutator

COORDINATORS = ("coordinator_load_from_compacted_log",)
_batches = Mutator("compaction", "kraftsim.partitions.rules_cleaning")
_cleaning = Mutator("compaction", "kraftsim.partitions.rules_cleaning")
_cleaner = Mutator("compaction", "kraftsim.partitions.log_cleaner")
_log = Mutator("compaction", "kraftsim.partitions.log")
_loading = Mutator("compaction", "kraftsim.partitions.hosted_partition")
_replication = Mutator("replication", "kraftsim.partitions.replication")

CORE = Core(
    mutants=(
        _batches.mutant(
            "forgets-the-last-of-a-key",
            "BatchCleaner._stays",
            "record.offset < self._offsets.last_offset_of(record.key)",
            "record.offset <= self._offsets.last_offset_of(record.key)",
            "no record of a key is left",
        ),
        _batches.mutant(
            "takes-the-aborted-for-later",
            "KeyScan.take",
            "if not batch.is_control and not may_go:",
            "if not batch.is_control:",
            "an aborted record replaces a committed one",
            scenarios=COORDINATORS,
        ),
        _batches.mutant(
            "takes-aborts-for-commits",
            "CleanedTransactions._marker_may_go",
            "if not marker.is_abort:",
            "if True:",
            "aborted records lose their marker, and are decided by the next one",
            scenarios=COORDINATORS,
        ),
        _batches.mutant(
            "forgets-where-producers-were",
            "BatchCleaner._retention",
            "if batch.has_producer_id and self._is_last_of_producer(batch):",
            "if False:",
            "a recovered producer state has an older batch of a producer, or none",
            equivalent="a producer with its own keys has a retained record in its last batch; "
            "offsets, with shared keys, have no sequences",
        ),
        _cleaning.mutant(
            "cleans-open-transactions",
            "cleanable",
            "min(extent.last_stable_offset, active.base_offset)",
            "active.base_offset",
            "an undecided record replaces a committed one",
            scenarios=COORDINATORS,
        ),
        _cleaner.mutant(
            "recovers-holes",
            "LogCleaner._clean",
            "await hosted.home.raise_recovery_point(hosted.key, found.end_offset)",
            "pass",
            "recovery treats the gaps left by cleaning as a torn end, and truncates the rest",
            scenarios=COORDINATORS,
        ),
        _log.mutant(
            "swaps-the-log-first",
            "PartitionLog.replace_segments",
            "CLEANED, SWAP, log_last=True",
            "CLEANED, SWAP, log_last=False",
            "a crash leaves a swapped log with indexes that are not swapped",
            scenarios=("compaction_under_load",),
            equivalent="recovery removes files swapped beside one that is not: the source segments "
            "still exist",
        ),
        _loading.mutant(
            "reads-no-further-than-a-hole",
            "read_back",
            "for batch in split_batches(read):",
            "for batch in (each for each in split_batches(read) if each.base_offset == "
            "next_offset):",
            "a coordinator does not load records after a gap",
            scenarios=COORDINATORS,
        ),
        _replication.mutant(
            "keeps-idle-fetchers",
            "Replication.leave_idle",
            "if fetcher.is_idle:",
            "if False:",
            "a leader that is elected again is not followed while an old request is in flight",
            scenarios=COORDINATORS,
        ),
    ),
)
