"""Compaction, and those who read what it left: the last record of a key that is gone, or one that was never committed in its place."""

from mutants.mutant import Core, Workshop

COORDINATORS = ("coordinators_read_compacted_logs",)
_batches = Workshop("compaction", "kraftsim.core.partitions.cleaned_batches")
_cleaning = Workshop("compaction", "kraftsim.core.partitions.cleaning")
_cleaner = Workshop("compaction", "kraftsim.node.broker.log_cleaner")
_log = Workshop("compaction", "kraftsim.node.log")
_loading = Workshop("compaction", "kraftsim.node.broker.coordinator_loading")
_replication = Workshop("replication", "kraftsim.node.broker.replication.replication")

CORE = Core(
    mutants=(
        _batches.mutant(
            "forgets-the-last-of-a-key",
            "BatchCleaner._stays",
            "record.offset < self._offsets.last_offset_of(record.key)",
            "record.offset <= self._offsets.last_offset_of(record.key)",
            "of a key nothing is left",
        ),
        _batches.mutant(
            "takes-the-aborted-for-later",
            "KeyScan.take",
            "if not batch.is_control and not may_go:",
            "if not batch.is_control:",
            "what was committed makes room for what was aborted",
            scenarios=COORDINATORS,
        ),
        _batches.mutant(
            "takes-aborts-for-commits",
            "CleanedTransactions._marker_may_go",
            "if not marker.is_abort:",
            "if True:",
            "aborted records lose their marker, and count with the next one",
            scenarios=COORDINATORS,
        ),
        _batches.mutant(
            "forgets-where-producers-were",
            "BatchCleaner._retention",
            "if batch.has_producer_id and self._is_last_of_producer(batch):",
            "if False:",
            "whoever reads the log back knows a producer by an older batch, or not at all",
            equivalent="who has keys of his own has a record that stays in his last batch; offsets, whose keys are shared, have no sequences",
        ),
        _cleaning.mutant(
            "cleans-open-transactions",
            "cleanable",
            "min(extent.last_stable_offset, active.base_offset)",
            "active.base_offset",
            "what was committed makes room for what is not decided",
            scenarios=COORDINATORS,
        ),
        _cleaner.mutant(
            "recovers-holes",
            "LogCleaner._clean",
            "await hosted.home.raise_recovery_point(hosted.key, found.end_offset)",
            "pass",
            "a recovery takes the holes that cleaning left for a torn end, and cuts what follows",
            scenarios=COORDINATORS,
        ),
        _log.mutant(
            "swaps-the-log-first",
            "PartitionLog.replace_segments",
            "CLEANED, SWAP, log_last=True",
            "CLEANED, SWAP, log_last=False",
            "a crash leaves a log that is swapped beside indexes that are not",
            scenarios=("compaction_under_load",),
            equivalent="whatever is swapped beside a file that is not yet goes: the segments that it was made of are still there",
        ),
        _loading.mutant(
            "reads-no-further-than-a-hole",
            "read_back",
            "for batch in split_batches(read):",
            "for batch in (each for each in split_batches(read) if each.base_offset == next_offset):",
            "a coordinator does not know what stands behind a hole",
            scenarios=COORDINATORS,
        ),
        _replication.mutant(
            "keeps-idle-fetchers",
            "Replication.leave_idle",
            "if fetcher.is_idle:",
            "if False:",
            "who leads again is not followed while an old request waits for its answer",
            scenarios=COORDINATORS,
        ),
    ),
)
