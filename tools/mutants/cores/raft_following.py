"""Followers: acknowledge what is not durable, keep what they must truncate, and lose their position
in a snapshot.
"""

from tools.mutants.mutant import Core, Mutator

_following = Mutator("raft", "kraftsim.raft.rules_following")
_log = Mutator("raft", "kraftsim.raft.rules_log")
_epochs = Mutator("raft", "kraftsim.partitions.rules_log")

CORE = Core(
    mutants=(
        _following.mutant(
            "fetches-before-the-flush",
            "_is_flushing",
            "return quorum.settings.always_flushes and quorum.log.flushed_end_offset < "
            "quorum.log.end_offset",
            "return False",
            "a Fetch acknowledges records that a power loss removes",
        ),
        _following.mutant(
            "follower-does-not-flush",
            "_append",
            "quorum.effects.append(Flush(quorum.log.end_offset))",
            "pass",
            "a follower never fetches again",
        ),
        _following.mutant(
            "trusts-the-leaders-high-watermark",
            "_learn_high_watermark",
            "min(leaders, quorum.log.end_offset)",
            "leaders",
            "a follower commits records that it does not have",
        ),
        _following.mutant(
            "learns-no-high-watermark",
            "_learn_high_watermark",
            "quorum.advance(high_watermark)",
            "pass",
            "brokers see no commits",
        ),
        _following.mutant(
            "cuts-in-mind-only",
            "_truncate",
            "quorum.effects.append(Truncate(end_offset))",
            "pass",
            "truncated records stay on disk",
        ),
        _following.mutant(
            "cuts-too-little",
            "_truncate",
            "min(ours.end_offset, theirs.end_offset)",
            "max(ours.end_offset, theirs.end_offset)",
            "a follower never agrees with the leader",
        ),
        _following.mutant(
            "cuts-one-record-too-much",
            "_truncate",
            "log.truncate_to(end_offset)",
            "end_offset -= 1\n    log.truncate_to(end_offset)",
            "committed records may be truncated",
        ),
        _following.mutant(
            "keeps-voters-it-cut",
            "_truncate",
            "quorum.voters.truncate_to(end_offset)",
            "pass",
            "a voter set that was never committed is used",
            scenarios=("voter_changes_under_faults",),
        ),
        _following.mutant(
            "never-gives-a-leader-up",
            "poll_follower",
            "if now_ms >= role.fetch_until_ms:\n            rules_elections",
            "if False:\n            rules_elections",
            "a failed leader is followed forever",
        ),
        _following.mutant(
            "takes-snapshots-for-done-early",
            "on_fetch_snapshot_response",
            "if fetch.position >= answer.size:",
            "if True:",
            "an incomplete snapshot replaces the log",
        ),
        _following.mutant(
            "takes-snapshots-for-done-never",
            "on_fetch_snapshot_response",
            "if fetch.position >= answer.size:",
            "if fetch.position > answer.size:",
            "a replica that needs a snapshot never makes progress",
        ),
        _following.mutant(
            "forgets-where-a-snapshot-stands",
            "on_fetch_snapshot_response",
            "fetch.position += len(answer.records)",
            "fetch.position += 0",
            "a replica that needs a snapshot fetches its start forever",
        ),
        _following.mutant(
            "snapshot-behind-the-log",
            "on_snapshot_installed",
            "quorum.log.advance_log_start(snapshot)",
            "quorum.log.add_snapshot(snapshot)",
            "the replica uses the log end from before the snapshot",
        ),
        _following.mutant(
            "takes-broken-batches",
            "_append",
            "if not fits or not batch.crc_is_valid():",
            "if not fits:",
            "a corrupt batch is replicated",
            equivalent="no fault corrupts bytes in transit: TCP's checksum prevents it, and so "
            "does the simulated network",
        ),
        _log.mutant(
            "flushed-beyond-the-cut",
            "RaftLog.truncate_to",
            "self.flushed_end_offset = min(self.flushed_end_offset, end_offset)",
            "pass",
            "new records count as flushed at offsets where old ones were",
        ),
        _log.mutant(
            "epochs-beyond-the-cut",
            "RaftLog.truncate_to",
            "self.epochs.truncate_to(end_offset)",
            "pass",
            "the log has an epoch that was truncated",
        ),
        _log.mutant(
            "agrees-with-everybody",
            "RaftLog.agreement_with",
            "found if found.epoch != last_fetched_epoch or found.end_offset < fetch_offset "
            "else None",
            "None",
            "a follower keeps records that the leader does not have",
        ),
        _log.mutant(
            "agrees-by-epoch",
            "RaftLog.agreement_with",
            " or found.end_offset < fetch_offset else",
            " else",
            "a longer tail of the same epoch is kept",
        ),
        _log.mutant(
            "agrees-with-nobody-at-the-end",
            "RaftLog.agreement_with",
            "found.end_offset < fetch_offset",
            "found.end_offset <= fetch_offset",
            "a follower that has everything must truncate",
        ),
        _log.mutant(
            "snapshot-without-high-watermark",
            "RaftLog.advance_log_start",
            "self.high_watermark = snapshot.end_offset",
            "self.high_watermark = None",
            "records covered by a snapshot do not count as committed",
        ),
        _log.mutant(
            "snapshot-not-flushed",
            "RaftLog.advance_log_start",
            "self.start_offset = self.end_offset = self.flushed_end_offset = snapshot.end_offset",
            "self.start_offset = self.end_offset = snapshot.end_offset",
            "a follower waits for a flush of records in a snapshot",
        ),
        _log.mutant(
            "start-forgets-its-epoch",
            "RaftLog.delete_before",
            "kept = [EpochStart(epoch, self.start_offset), *kept]",
            "pass",
            "the log lacks the epoch of its first record",
        ),
        _epochs.mutant(
            "epoch-ends-a-record-early",
            "LeaderEpochs.end_offset_for",
            "(lower[-1] if lower else leader_epoch), higher.start_offset",
            "(lower[-1] if lower else leader_epoch), higher.start_offset - 1",
            "a follower truncates a record that the leader has",
        ),
        _epochs.mutant(
            "epoch-ends-a-record-late",
            "LeaderEpochs.end_offset_for",
            "(lower[-1] if lower else leader_epoch), higher.start_offset",
            "(lower[-1] if lower else leader_epoch), higher.start_offset + 1",
            "a follower keeps a record that the leader does not have",
        ),
        _epochs.mutant(
            "keeps-the-epoch-it-cut",
            "LeaderEpochs.truncate_to",
            "start.start_offset < end_offset",
            "start.start_offset <= end_offset",
            "the log has an epoch without records",
        ),
    )
)
