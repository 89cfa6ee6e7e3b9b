"""Disks that are not asked, asked too late, or in the wrong order: what a replica says is durable and is not."""

from mutants.mutant import Core, Workshop

_store = Workshop("raft stores", "kraftsim.node.raft.metadata_store")
_node = Workshop("raft stores", "kraftsim.node.raft.raft_node")
_snapshots = Workshop("raft stores", "kraftsim.node.raft.snapshot_files")
_writing = Workshop("raft stores", "kraftsim.node.raft.snapshotting")
_point = Workshop("raft stores", "kraftsim.node.raft.recovery_point")
_fetches = Workshop("raft stores", "kraftsim.node.raft.waiting_fetches")
_log = Workshop("raft stores", "kraftsim.node.log")
_files = Workshop("raft stores", "kraftsim.node.segment_files")
_scan = Workshop("raft stores", "kraftsim.node.segment_scan")

SLOW_DISKS = ("power_fails_on_slow_disks",)
FALL_BEHIND = ("power_fails_while_disks_fall_behind",)
NOT_TRUSTED = ("a_disk_cannot_be_trusted",)
ONE_BROKER = ("power_fails_at_one_broker",)
QUIET = ("changes_in_a_quiet_cluster",)
TOO_SHORT = ("time_outs_are_too_short",)

CORE = Core(
    mutants=(
        _store.mutant(
            "flushes-nothing",
            "MetadataStore.flush",
            "flushed_offset = await self._log.flush()",
            "flushed_offset = self._log.log_end_offset",
            "a loss of power takes what was committed",
        ),
        _store.mutant(
            "stores-no-quorum-state",
            "MetadataStore.store_quorum_state",
            "await self._world.disk.replace(QUORUM_STATE_PATH, build_quorum_state(state, data_version))",
            "pass",
            "after a restart nothing is known of epochs and votes",
        ),
        _store.mutant(
            "keeps-what-is-behind-a-gap",
            "SegmentedLog.recover_without_gaps",
            "self.truncate_to(end_offset if gap is None else gap)",
            "pass",
            "a log with a hole in it",
            scenarios=FALL_BEHIND,
        ),
        _store.mutant(
            "recovery-point-ahead-of-a-cut",
            "MetadataStore.truncate_to",
            "await self._lower_recovery_point(end_offset)",
            "pass",
            "a node that restarts after a cut takes its disk for damaged",
            scenarios=SLOW_DISKS,
        ),
        _store.mutant(
            "recovery-point-ahead-of-the-flush",
            "MetadataStore.flush",
            "await self.store_recovery_point(flushed_offset)",
            "await self.store_recovery_point(self._log.log_end_offset)",
            "a node that lost its power takes its disk for damaged",
            scenarios=SLOW_DISKS,
        ),
        _store.mutant(
            "log-gives-way-before-the-snapshot",
            "MetadataStore.install",
            "await self.snapshots.finish_fetched(snapshot)",
            "self._log.begin_at(snapshot.end_offset)\n        await self.snapshots.finish_fetched(snapshot)",
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
            "the epochs on the disk are those of before",
            equivalent="the file is for Apache Kafka's tools: a replica builds its epochs from the log when it starts",
        ),
        _point.mutant(
            "accepts-any-damage",
            "RecoveryPoint.require",
            "if end_offset < self.offset:",
            "if False:",
            "a voter votes without records that it had acknowledged",
            scenarios=NOT_TRUSTED,
        ),
        _node.mutant(
            "answers-before-it-is-written",
            "RaftNode._hold",
            "self._is_holding = True",
            "self._is_holding = False",
            "a vote is told before it is durable",
        ),
        _node.mutant(
            "writes-only-the-last-state",
            "RaftNode._is_followed_by_persist",
            "return isinstance(following, do.Persist)",
            "return any(isinstance(effect, do.Persist) for effect in self._queue)",
            "a vote is told before it is durable",
            scenarios=SLOW_DISKS,
        ),
        _node.mutant(
            "fetch-looks-past-the-queue",
            "RaftNode.when_durable",
            "if self._is_holding or self._is_running:",
            "if False:",
            "an epoch is told before it is durable",
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
            "a controller acts on a state that lacks what is committed",
        ),
        _node.mutant(
            "leads-an-epoch-that-is-over",
            "RaftNode._apply_next",
            "self._epoch_to_lead is not None and self.replica.is_leader and self.quorum.epoch == self._epoch_to_lead and",
            "self._epoch_to_lead is not None and",
            "a controller acts that leads no more",
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
            "what is not committed is acted upon",
        ),
        _node.mutant(
            "snapshot-not-loaded",
            "RaftNode._install",
            "self._snapshot_to_load = snapshot",
            "pass",
            "the state lacks what the snapshot has",
            equivalent="a fetched snapshot ends behind what was handed on, or just there: a log that begins behind it is looked for as well",
        ),
        _node.mutant(
            "ignores-a-refused-flush",
            "RaftNode.flush",
            'self.lose_disk("flush", refused)',
            "pass",
            "a node goes on with a disk that lost its writes",
            scenarios=NOT_TRUSTED,
        ),
        _node.mutant(
            "fresh-batches-outlive-a-cut",
            "RaftNode._carry_out_durably",
            "self._fresh.clear()",
            "pass",
            "what was cut is handed on as committed",
            scenarios=SLOW_DISKS,
        ),
        _snapshots.mutant(
            "names-a-snapshot-before-the-flush",
            "SnapshotFiles._name",
            "await file.flush()",
            "pass",
            "a loss of power leaves a torn snapshot under its name",
        ),
        _snapshots.mutant(
            "takes-torn-snapshots",
            "read_batches",
            "if kind is not ControlType.SNAPSHOT_FOOTER or position != len(data):",
            "if False:",
            "a torn snapshot counts as whole",
        ),
        _snapshots.mutant(
            "takes-rotten-snapshots",
            "read_batches",
            "if not batch.crc_is_valid():",
            "if False:",
            "a snapshot with a flipped bit counts as sound",
        ),
        _snapshots.mutant(
            "snapshot-appended-to-an-old-piece",
            "SnapshotFiles.write_piece",
            "if position == 0:",
            "if position == 0 and self._fetched is None:",
            "a snapshot that is begun anew is put behind what there was of it",
            scenarios=SLOW_DISKS,
        ),
        _writing.mutant(
            "snapshot-of-what-is-not-committed",
            "Snapshotting.write",
            "await self._fold(raft.high_watermark or 0)",
            "await self._fold(raft.log_end_offset)",
            "a snapshot has records that are cut later",
        ),
        _writing.mutant(
            "snapshot-over-an-installed-one",
            "Snapshotting.write",
            " or installed_count != raft.installed_count:",
            ":",
            "a snapshot of a log that is gone",
            equivalent="it is looked at again when the snapshot is written: it is set aside then, and whoever starts before finds the newer one",
        ),
        _writing.mutant(
            "snapshot-begins-anew",
            "Snapshotting._fold",
            "                _load(image, batch)\n",
            "",
            "a snapshot lacks what only the one before it has",
        ),
        _writing.mutant(
            "snapshot-skips-a-batch",
            "Snapshotting._fold",
            "offset = latest.end_offset",
            "offset = latest.end_offset + 1",
            "a snapshot lacks the first record behind the one before it",
        ),
        _writing.mutant(
            "deletes-the-newest-snapshot",
            "Snapshotting.clean",
            "while len(log.snapshots) > 1 and",
            "while len(log.snapshots) > 1 and len(log.snapshots) < 3 and",
            "logs and snapshots are kept for ever",
        ),
        _fetches.mutant(
            "gives-a-stale-answer",
            "WaitingFetches.give",
            "if told != self._last_told:",
            "if told[1:3] != self._last_told[1:3]:",
            "a replica is told an old high watermark or epoch",
            scenarios=QUIET,
        ),
        _log.mutant(
            "flushes-the-last-segment-only",
            "PartitionLog.flush",
            "if following is None or following.base_offset > self.flushed_offset:",
            "if following is None:",
            "a loss of power takes the end of a segment that was rolled",
        ),
        _log.mutant(
            "cut-files-not-flushed",
            "PartitionLog.settle_cut",
            "await self._files.log_file(segment.base_offset).flush()",
            "pass",
            "a loss of power brings back what was cut, in front of what is durable behind it",
            scenarios=FALL_BEHIND,
        ),
        _log.mutant(
            "flushes-no-names", "PartitionLog.settle_cut", "await self._files.flush_names()", "pass", "a loss of power takes a whole segment"
        ),
        _log.mutant(
            "cuts-in-memory-only", "PartitionLog._fill_active", "file.truncate(active.size_bytes)", "pass", "what was cut is still in the file"
        ),
        _log.mutant(
            "cuts-the-wrong-batch",
            "PartitionLog._fill_active",
            "batch.next_offset > end_offset",
            "batch.next_offset >= end_offset",
            "a cut takes a batch too many",
        ),
        _log.mutant(
            "keeps-what-is-behind-a-hole",
            "PartitionLog.recover",
            "if following and (cut_bytes or has_gap or following[0] < self.log_end_offset):",
            "if following and (cut_bytes or following[0] < self.log_end_offset):",
            "a broker that lost its power has a partition with a hole in it",
            scenarios=ONE_BROKER,
        ),
        _log.mutant(
            "flushed-offset-beyond-the-cut",
            "PartitionLog.truncate_to",
            "self.flushed_offset = min(self.flushed_offset, self.log_end_offset)",
            "pass",
            "new records count as flushed where old ones were",
            scenarios=SLOW_DISKS,
        ),
        _scan.mutant(
            "believes-torn-batches",
            "SegmentScan._wrong_with",
            "and not batch.crc_is_valid()",
            "and False",
            "a torn batch is taken for a record",
            scenarios=("large_changes_in_mid_write",),
        ),
    )
)
