"""Missing, late or misordered disk operations: a replica reports something as durable that is
not.
"""

from tools.mutants.mutant import Core, Mutator

_store = Mutator("raft stores", "kraftsim.raft.metadata_store")
_node = Mutator("raft stores", "kraftsim.raft.raft_node")
_snapshots = Mutator("raft stores", "kraftsim.raft.metadata_store")
_writing = Mutator("raft stores", "kraftsim.raft.snapshotting")
_point = Mutator("raft stores", "kraftsim.raft.metadata_store")
_fetches = Mutator("raft stores", "kraftsim.raft.quorum_requests")
_log = Mutator("raft stores", "kraftsim.partitions.log")
_files = Mutator("raft stores", "kraftsim.partitions.segment_files")
_scan = Mutator("raft stores", "kraftsim.partitions.segment_files")

SLOW_DISKS = ("controller_power_loss_slow_disks",)
FALL_BEHIND = ("controller_power_loss_write_backlog",)
NOT_TRUSTED = ("controller_disk_corruption",)
ONE_BROKER = ("broker_power_loss",)
QUIET = ("metadata_changes_in_idle_cluster",)
TOO_SHORT = ("election_timeouts_too_short",)

CORE = Core(
    mutants=(
        _store.mutant(
            "flushes-nothing",
            "MetadataStore.flush",
            "flushed_offset = await self._log.flush()",
            "flushed_offset = self._log.log_end_offset",
            "a power loss removes committed records",
        ),
        _store.mutant(
            "stores-no-quorum-state",
            "MetadataStore.store_quorum_state",
            "await self._world.disk.replace(QUORUM_STATE_PATH, build_quorum_state(state, "
            "data_version))",
            "pass",
            "a restart loses epoch and vote",
        ),
        _store.mutant(
            "keeps-what-is-behind-a-gap",
            "SegmentedLog.recover_without_gaps",
            "self.truncate_to(end_offset if gap is None else gap)",
            "pass",
            "a log with a gap",
            scenarios=FALL_BEHIND,
        ),
        _store.mutant(
            "recovery-point-ahead-of-a-cut",
            "MetadataStore.truncate_to",
            "await self._lower_recovery_point(end_offset)",
            "pass",
            "a node that restarts after a truncation reports its disk as corrupt",
            scenarios=SLOW_DISKS,
        ),
        _store.mutant(
            "recovery-point-ahead-of-the-flush",
            "MetadataStore.flush",
            "await self.store_recovery_point(flushed_offset)",
            "await self.store_recovery_point(self._log.log_end_offset)",
            "a node that lost power reports its disk as corrupt",
            scenarios=SLOW_DISKS,
        ),
        _store.mutant(
            "log-gives-way-before-the-snapshot",
            "MetadataStore.install",
            "await self.snapshots.finish_fetched(snapshot)",
            "self._log.advance_log_start(snapshot.end_offset)\n        await "
            "self.snapshots.finish_fetched(snapshot)",
            "a crash leaves neither log nor snapshot",
            scenarios=SLOW_DISKS,
        ),
        _store.mutant(
            "log-stays-behind-its-snapshot",
            "MetadataStore._ends_before",
            "return last_epoch < snapshot.epoch or self._log.log_end_offset < snapshot.end_offset",
            "return False",
            "a log that ends before its snapshot",
            scenarios=FALL_BEHIND,
        ),
        _store.mutant(
            "epoch-file-forgotten",
            "MetadataStore.load",
            "await self._log.store_epochs()",
            "pass",
            "the leader-epoch checkpoint on disk is outdated",
            equivalent="the file is for Apache Kafka's tools: a replica rebuilds its epochs from "
            "the log at startup",
        ),
        _point.mutant(
            "accepts-any-damage",
            "RecoveryPoint.require",
            "if end_offset < self.offset:",
            "if False:",
            "a voter votes without records that it acknowledged",
            scenarios=NOT_TRUSTED,
        ),
        _node.mutant(
            "answers-before-it-is-written",
            "RaftNode._hold",
            "self._is_holding = True",
            "self._is_holding = False",
            "a vote is sent before it is durable",
        ),
        _node.mutant(
            "writes-only-the-last-state",
            "RaftNode._is_followed_by_persist",
            "return isinstance(following, do.Persist)",
            "return any(isinstance(effect, do.Persist) for effect in self._queue)",
            "a vote is sent before it is durable",
            scenarios=SLOW_DISKS,
        ),
        _node.mutant(
            "fetch-looks-past-the-queue",
            "RaftNode.when_durable",
            "if self._is_holding or self._is_running:",
            "if False:",
            "an epoch is sent before it is durable",
        ),
        _node.mutant(
            "flushed-what-came-meanwhile",
            "RaftNode.flush",
            "self.replica.on_flushed(flushed_end_offset)",
            "self.replica.on_flushed(self.log_end_offset)",
            "what was written during a flush counts as flushed",
        ),
        _node.mutant(
            "leads-before-it-has-read",
            "RaftNode._apply_next",
            "if self._applied_end_offset != self.high_watermark:",
            "if False:",
            "a controller becomes active without committed records",
        ),
        _node.mutant(
            "leads-an-epoch-that-is-over",
            "RaftNode._apply_next",
            "self._epoch_to_lead is not None and self.replica.is_leader and self.quorum.epoch == "
            "self._epoch_to_lead and",
            "self._epoch_to_lead is not None and",
            "a controller that is no longer leader becomes active",
            scenarios=TOO_SHORT,
        ),
        _node.mutant(
            "applies-again-after-leading",
            "RaftNode._carry_out_seldom",
            "self._applied_end_offset = self.high_watermark or 0",
            "self._applied_end_offset = 0",
            "records are replayed twice",
        ),
        _node.mutant(
            "applies-all-that-is-written",
            "RaftNode._apply_next",
            "committed = self.high_watermark or 0",
            "committed = self.log_end_offset",
            "uncommitted records are applied",
        ),
        _node.mutant(
            "snapshot-not-loaded",
            "RaftNode._install",
            "self._snapshot_to_load = snapshot",
            "pass",
            "the state lacks records of the snapshot",
            equivalent="a fetched snapshot ends at or after the applied offset: a log that "
            "starts after that is detected as well",
        ),
        _node.mutant(
            "ignores-a-refused-flush",
            "RaftNode.flush",
            'self.fail_disk("flush", refused)',
            "pass",
            "a node continues with a disk that lost writes",
            scenarios=NOT_TRUSTED,
        ),
        _node.mutant(
            "fresh-batches-outlive-a-cut",
            "RaftNode._carry_out_durably",
            "self._fresh.clear()",
            "pass",
            "truncated records are applied as committed",
            scenarios=SLOW_DISKS,
        ),
        _snapshots.mutant(
            "names-a-snapshot-before-the-flush",
            "SnapshotFiles._name",
            "await file.flush()",
            "pass",
            "a power loss leaves a torn snapshot with its final name",
        ),
        _snapshots.mutant(
            "takes-torn-snapshots",
            "read_batches",
            "if kind is not ControlType.SNAPSHOT_FOOTER or position != len(data):",
            "if False:",
            "a torn snapshot counts as complete",
        ),
        _snapshots.mutant(
            "takes-rotten-snapshots",
            "read_batches",
            "if not batch.crc_is_valid():",
            "if False:",
            "a snapshot with a flipped bit counts as valid",
        ),
        _snapshots.mutant(
            "snapshot-appended-to-an-old-piece",
            "SnapshotFiles.write_piece",
            "if position == 0:",
            "if position == 0 and self._fetched is None:",
            "a snapshot fetched from the start again is appended to the earlier part",
            scenarios=SLOW_DISKS,
        ),
        _writing.mutant(
            "snapshot-of-what-is-not-committed",
            "Snapshotting.write",
            "await self._fold(raft.high_watermark or 0)",
            "await self._fold(raft.log_end_offset)",
            "a snapshot has records that are truncated later",
        ),
        _writing.mutant(
            "snapshot-over-an-installed-one",
            "Snapshotting.write",
            " or installed_count != raft.installed_count:",
            ":",
            "a snapshot of a replaced log",
            equivalent="it is checked again when the snapshot is written and dropped then; a "
            "node that starts earlier finds the newer one",
        ),
        _writing.mutant(
            "snapshot-begins-anew",
            "Snapshotting._fold",
            "                _load(image, batch)\n",
            "",
            "a snapshot lacks records that only the previous one has",
        ),
        _writing.mutant(
            "snapshot-skips-a-batch",
            "Snapshotting._fold",
            "offset = latest.end_offset",
            "offset = latest.end_offset + 1",
            "a snapshot lacks the first record after the previous one",
        ),
        _writing.mutant(
            "deletes-the-newest-snapshot",
            "Snapshotting.clean",
            "while len(log.snapshots) > 1 and",
            "while len(log.snapshots) > 1 and len(log.snapshots) < 3 and",
            "logs and snapshots are kept forever",
        ),
        _fetches.mutant(
            "gives-a-stale-answer",
            "WaitingFetches.give",
            "if state != self._last_state:",
            "if state[1:3] != self._last_state[1:3]:",
            "a replica receives an old high watermark or epoch",
            scenarios=QUIET,
        ),
        _log.mutant(
            "flushes-the-last-segment-only",
            "PartitionLog.flush",
            "if following is None or following.base_offset > self.flushed_offset:",
            "if following is None:",
            "a power loss removes the end of a rolled segment",
        ),
        _log.mutant(
            "cut-files-not-flushed",
            "PartitionLog.complete_truncation",
            "await self._files.log_file(segment.base_offset).flush()",
            "pass",
            "a power loss restores truncated records before durable ones",
            scenarios=FALL_BEHIND,
        ),
        _log.mutant(
            "flushes-no-names",
            "PartitionLog.complete_truncation",
            "await self._files.flush_names()",
            "pass",
            "a power loss removes a whole segment",
        ),
        _log.mutant(
            "cuts-in-memory-only",
            "PartitionLog._fill_active",
            "file.truncate(active.size_bytes)",
            "pass",
            "truncated records are still in the file",
        ),
        _log.mutant(
            "cuts-the-wrong-batch",
            "PartitionLog._fill_active",
            "batch.next_offset > end_offset",
            "batch.next_offset >= end_offset",
            "a truncation removes a batch too many",
        ),
        _log.mutant(
            "keeps-what-is-behind-a-hole",
            "PartitionLog.recover",
            "if following and (truncated_bytes or has_gap or following[0] < self.log_end_offset):",
            "if following and (truncated_bytes or following[0] < self.log_end_offset):",
            "a broker that lost power has a partition with a gap",
            scenarios=ONE_BROKER,
        ),
        _log.mutant(
            "flushed-offset-beyond-the-cut",
            "PartitionLog.truncate_to",
            "self.flushed_offset = min(self.flushed_offset, self.log_end_offset)",
            "pass",
            "new records count as flushed at offsets where old ones were",
            scenarios=SLOW_DISKS,
        ),
        _scan.mutant(
            "believes-torn-batches",
            "SegmentScan._wrong_with",
            "and not batch.crc_is_valid()",
            "and False",
            "a torn batch counts as valid",
            scenarios=("torn_large_metadata_records",),
        ),
    )
)
