"""Followers that do wrong: acknowledge what is not durable, keep what they must cut, and lose their place in a snapshot."""

from mutants.mutant import Core, Workshop

_following = Workshop("raft", "kraftsim.core.raft.following")
_log = Workshop("raft", "kraftsim.core.raft.raft_log")
_epochs = Workshop("raft", "kraftsim.core.partitions.leader_epochs")

CORE = Core(
    mutants=(
        _following.mutant(
            "fetches-before-the-flush",
            "_is_flushing",
            "return quorum.settings.always_flushes and quorum.log.flushed_end_offset < quorum.log.end_offset",
            "return False",
            "a Fetch acknowledges what a loss of power takes",
        ),
        _following.mutant(
            "follower-does-not-flush", "_append", "quorum.effects.append(Flush(quorum.log.end_offset))", "pass", "a follower never fetches again"
        ),
        _following.mutant(
            "trusts-the-leaders-high-watermark",
            "_learn_high_watermark",
            "min(leaders, quorum.log.end_offset)",
            "leaders",
            "a follower takes for committed what it does not have",
        ),
        _following.mutant("learns-no-high-watermark", "_learn_high_watermark", "quorum.advance(high_watermark)", "pass", "brokers learn nothing"),
        _following.mutant(
            "cuts-in-mind-only", "_truncate", "quorum.effects.append(Truncate(end_offset))", "pass", "the disk keeps what the rules have cut"
        ),
        _following.mutant(
            "cuts-too-little",
            "_truncate",
            "min(ours.end_offset, theirs.end_offset)",
            "max(ours.end_offset, theirs.end_offset)",
            "it never agrees with the leader",
        ),
        _following.mutant(
            "cuts-one-record-too-much",
            "_truncate",
            "log.truncate_to(end_offset)",
            "end_offset -= 1\n    log.truncate_to(end_offset)",
            "what may be committed is cut",
        ),
        _following.mutant(
            "keeps-voters-it-cut",
            "_truncate",
            "quorum.voters.truncate_to(end_offset)",
            "pass",
            "voters that were never committed count",
            scenarios=("voters_come_and_go",),
        ),
        _following.mutant(
            "never-gives-a-leader-up",
            "poll_follower",
            "if now_ms >= role.fetch_until_ms:\n            elections",
            "if False:\n            elections",
            "a leader that is gone is followed for ever",
        ),
        _following.mutant(
            "takes-snapshots-for-done-early",
            "on_fetch_snapshot_response",
            "if fetch.position >= answer.size:",
            "if True:",
            "half a snapshot takes the log's place",
        ),
        _following.mutant(
            "takes-snapshots-for-done-never",
            "on_fetch_snapshot_response",
            "if fetch.position >= answer.size:",
            "if fetch.position > answer.size:",
            "whoever needs a snapshot never gets on",
        ),
        _following.mutant(
            "forgets-where-a-snapshot-stands",
            "on_fetch_snapshot_response",
            "fetch.position += len(answer.records)",
            "fetch.position += 0",
            "whoever needs a snapshot asks for its beginning for ever",
        ),
        _following.mutant(
            "snapshot-behind-the-log",
            "on_snapshot_installed",
            "quorum.log.begin_at(snapshot)",
            "quorum.log.add_snapshot(snapshot)",
            "the rules take the log for what it was before the snapshot",
        ),
        _following.mutant(
            "takes-broken-batches",
            "_append",
            "if not fits or not batch.crc_is_valid():",
            "if not fits:",
            "a broken batch is copied",
            equivalent="no fault breaks bytes under way: TCP's own checksum does not let it happen, and the simulated network neither",
        ),
        _log.mutant(
            "flushed-beyond-the-cut",
            "RaftLog.truncate_to",
            "self.flushed_end_offset = min(self.flushed_end_offset, end_offset)",
            "pass",
            "new records count as flushed where old ones were",
        ),
        _log.mutant(
            "epochs-beyond-the-cut", "RaftLog.truncate_to", "self.epochs.truncate_to(end_offset)", "pass", "the log claims an epoch that was cut"
        ),
        _log.mutant(
            "agrees-with-everybody",
            "RaftLog.agreement_with",
            "return found if found.epoch != last_fetched_epoch or found.end_offset < fetch_offset else None",
            "return None",
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
            "a follower that has everything is told to cut",
        ),
        _log.mutant(
            "snapshot-without-high-watermark",
            "RaftLog.begin_at",
            "self.high_watermark = snapshot.end_offset",
            "self.high_watermark = None",
            "what a snapshot covers is not known to be committed",
        ),
        _log.mutant(
            "snapshot-not-flushed",
            "RaftLog.begin_at",
            "self.start_offset = self.end_offset = self.flushed_end_offset = snapshot.end_offset",
            "self.start_offset = self.end_offset = snapshot.end_offset",
            "a follower waits for a flush of what is in a snapshot",
        ),
        _log.mutant(
            "start-forgets-its-epoch",
            "RaftLog.delete_before",
            "kept = [EpochStart(epoch, self.start_offset), *kept]",
            "pass",
            "the log does not know the epoch with which it begins",
        ),
        _epochs.mutant(
            "epoch-ends-a-record-early",
            "LeaderEpochs.end_offset_for",
            "(lower[-1] if lower else leader_epoch), higher.start_offset",
            "(lower[-1] if lower else leader_epoch), higher.start_offset - 1",
            "a follower cuts a record that it shares with the leader",
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
            "an epoch without records is claimed",
        ),
    )
)
