"""Leaders: commit without a majority, become active too early, or never resign."""

from tools.mutants.mutant import Core, Mutator

_leadership = Mutator("raft", "kraftsim.raft.rules_roles")
_leading = Mutator("raft", "kraftsim.raft.rules_leading")
_serving = Mutator("raft", "kraftsim.raft.rules_serving")

TOO_SHORT = ("election_timeouts_too_short",)

CORE = Core(
    mutants=(
        _leadership.mutant(
            "commits-what-one-has",
            "Leadership.high_watermark",
            "ends[len(ends) // 2]",
            "ends[0]",
            "committed without a majority",
        ),
        _leadership.mutant(
            "commits-what-all-have",
            "Leadership.high_watermark",
            "ends[len(ends) // 2]",
            "ends[-1]",
            "one voter that is down blocks commits",
        ),
        _leadership.mutant(
            "sorts-the-wrong-way",
            "Leadership.high_watermark",
            "reverse=True",
            "reverse=False",
            "with an even number of voters, half counts as a majority",
        ),
        _leadership.mutant(
            "counts-what-it-sent",
            "Leadership.on_fetch",
            "progress.end_offset = fetch_offset",
            "progress.end_offset = log_end_offset",
            "records in flight to a follower count as replicated",
        ),
        _leadership.mutant(
            "counts-one-record-more",
            "Leadership.on_fetch",
            "progress.end_offset = fetch_offset",
            "progress.end_offset = fetch_offset + 1",
            "a record counts that the follower does not have",
        ),
        _leadership.mutant(
            "counts-observers",
            "Leadership.high_watermark",
            "self._end_of(key, log) for key in self._voters.keys",
            "self._end_of(key, log) for key in [self.own, *self._progress]",
            "observers count for the majority",
        ),
        _leadership.mutant(
            "hears-observers",
            "Leadership.record_contact",
            "if self._is_voter(key):",
            "if True:",
            "a leader without fetches from voters does not resign",
        ),
        _leadership.mutant(
            "never-resigns",
            "Leadership.resigns_at_ms",
            "else self._majority_contact_ms + check_quorum_ms",
            "else None",
            "a leader without fetches from voters does not resign",
        ),
        _leadership.mutant(
            "counts-its-own-voice-twice",
            "Leadership.record_contact",
            "self._voters.majority - (1 if self._voters.includes(self.own) else 0)",
            "self._voters.majority",
            "a leader with fetches from one of two voters resigns",
        ),
        _leading.mutant(
            "leads-before-it-may",
            "lead",
            "    on_written(quorum)",
            "    leadership.is_announced = True\n    "
            "quorum.effects.append(Lead(quorum.epoch))\n    on_written(quorum)",
            "a controller becomes active without uncommitted records",
        ),
        _leading.mutant(
            "leader-does-not-flush",
            "on_written",
            "quorum.effects.append(Flush(quorum.log.end_offset))",
            "pass",
            "a sole voter never commits",
            scenarios=("producer_ids_survive_failover",),
        ),
        _leading.mutant(
            "wakes-nobody",
            "on_written",
            "quorum.effects.append(WakeFetches())",
            "pass",
            "followers receive a record half a second late: too late for short timeouts",
            scenarios=TOO_SHORT,
        ),
        _leading.mutant(
            "tells-the-voters-nothing",
            "_notify_voters",
            "quorum.send_to(voter, rules_messages.begin_epoch_request(quorum, voter))",
            "pass",
            "no replica follows the leader",
        ),
        _leading.mutant(
            "commits-only-at-its-own-flush",
            "on_fetch",
            "            _advance(quorum)",
            "            pass",
            "a commit waits for the next record",
        ),
        _leading.mutant(
            "commits-only-by-others",
            "on_flushed",
            "_advance(quorum)",
            "pass",
            "a sole voter never commits",
            scenarios=("producer_ids_survive_failover",),
        ),
        _leading.mutant(
            "sees-no-divergence",
            "on_fetch",
            "if found is not None:",
            "if isinstance(found, SnapshotId):",
            "a follower keeps records that the leader does not have",
        ),
        _leading.mutant(
            "offers-no-snapshot",
            "on_fetch",
            "if found is not None:",
            "if isinstance(found, Diverging):",
            "a follower receives records beyond its log end",
        ),
        _leading.mutant(
            "notified-by-past-leaders",
            "on_begin_epoch_request",
            "if answer.epoch < quorum.epoch:",
            "if False:",
            "a leader of a past epoch receives no error",
        ),
        _serving.mutant(
            "serves-past-epochs",
            "_refuse_epoch",
            "if epoch != quorum.epoch:",
            "if epoch > quorum.epoch:",
            "a follower of a past leader is served",
        ),
        _serving.mutant(
            "serves-without-leading",
            "_refuse_epoch",
            "if not isinstance(quorum.role, Leader):",
            "if False:",
            "a follower responds as if it were leader",
        ),
        _serving.mutant(
            "tells-its-old-high-watermark",
            "_published_high_watermark",
            "known <= quorum.role.leadership.epoch_start_offset",
            "False",
            "followers receive a high watermark that decreases",
        ),
    )
)
