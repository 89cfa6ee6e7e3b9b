"""Elections: wrong votes, wrong vote counts, and votes that are not stored."""

from tools.mutants.mutant import Core, Mutator

_elections = Mutator("raft", "kraftsim.raft.rules_elections")
_quorum = Mutator("raft", "kraftsim.raft.rules_quorum")
_replica = Mutator("raft", "kraftsim.raft.rules_replica")
_answers = Mutator("raft", "kraftsim.raft.rules_messages")

CORE = Core(
    mutants=(
        _elections.mutant(
            "any-log-may-lead",
            "_is_complete",
            "theirs >= quorum.log.end",
            "True",
            "a leader without committed records",
        ),
        _elections.mutant(
            "longer-log-wins",
            "_is_complete",
            "theirs >= quorum.log.end",
            "theirs.offset >= quorum.log.end.offset",
            "an old tail beats a newer epoch",
        ),
        _elections.mutant(
            "later-epoch-wins",
            "_is_complete",
            "theirs >= quorum.log.end",
            "theirs.epoch >= quorum.log.end.epoch",
            "a shorter log of the epoch wins",
        ),
        _elections.mutant(
            "only-a-longer-log-may-lead", "_is_complete", ">=", ">", "equal logs elect no leader"
        ),
        _elections.mutant(
            "wins-with-its-own-vote",
            "poll_candidate",
            "len(role.canvass.granted) >= quorum.voter_set.majority",
            "len(role.canvass.granted) >= quorum.voter_set.majority - 1",
            "two leaders in an epoch",
        ),
        _elections.mutant(
            "counts-refusals", "_count", "if is_granted:", "if True:", "two leaders in an epoch"
        ),
        _elections.mutant(
            "gives-its-vote-again",
            "_would_grant",
            "return voted.is_same_as(asked.candidate)",
            "return True",
            "two votes in an epoch",
        ),
        _elections.mutant(
            "votes-in-a-past-epoch",
            "_check",
            "if asked.epoch < quorum.epoch:",
            "if asked.epoch < quorum.epoch - 1:",
            "a voter votes twice",
        ),
        _elections.mutant(
            "votes-without-entering-the-epoch",
            "on_vote_request",
            "quorum.become_unattached(asked.epoch, now_ms)",
            "pass",
            "a voter votes in an epoch that it is not in",
        ),
        _elections.mutant(
            "never-stands-again",
            "poll_candidate",
            "if now_ms < role.backs_off_until_ms:",
            "if True:",
            "a lost election is the last one",
        ),
        _quorum.mutant(
            "forgets-its-role",
            "Quorum._enter",
            "self.effects.append(Persist(self.persisted(), self.voters.kraft_version))",
            "pass",
            "a restart loses epoch and vote",
        ),
        _quorum.mutant(
            "writes-no-vote",
            "Quorum.persisted",
            "voted_id=NOT_VOTED if voted is None else voted.id",
            "voted_id=NOT_VOTED",
            "a restart loses a vote",
        ),
        _quorum.mutant(
            "writes-no-vote-for-itself",
            "Quorum.persisted",
            "voted = self.own",
            "voted = None",
            "a candidate that restarts votes for another",
        ),
        _quorum.mutant(
            "reads-no-vote",
            "Quorum.begin",
            "if state.voted_id != NOT_VOTED else None",
            "if False else None",
            "a restart loses a vote",
        ),
        _quorum.mutant(
            "reads-the-epoch-from-the-log",
            "Quorum.begin",
            "if state.leader_epoch < log_epoch:",
            "if state.leader_epoch <= log_epoch:",
            "a restart loses a vote in the epoch of the last record",
        ),
        _quorum.mutant(
            "keeps-its-epoch-number",
            "Quorum.become_candidate",
            "epoch=self.epoch + 1",
            "epoch=self.epoch",
            "a candidate in an epoch that has a leader, or in which it voted",
        ),
        _quorum.mutant(
            "goes-on-leading",
            "Quorum._enter",
            'self.effects.append(StopLeading(former.epoch, reason or f"epoch {role.epoch} has '
            'begun"))',
            "pass",
            "the writes of an old leader are not reverted",
        ),
        _quorum.mutant(
            "ignores-later-epochs",
            "Quorum.see_epoch",
            "if epoch > self.epoch:",
            "if epoch > self.epoch + 1:",
            "no replica follows a leader",
        ),
        _quorum.mutant(
            "epoch-begins-a-record-early",
            "Quorum.become_leader",
            "epoch_start_offset=self.log.end_offset",
            "epoch_start_offset=self.log.end_offset - 1",
            "records of earlier epochs are committed without one of the leader's epoch "
            "(KAFKA-12619)",
        ),
        _quorum.mutant(
            "tells-nobody-who-leads",
            "Quorum._publish_leader",
            "self.effects.append(LeaderKnown(self.epoch, leader))",
            "pass",
            "brokers do not find the controller",
        ),
        _quorum.mutant(
            "hears-answers-of-past-epochs",
            "Quorum._enter",
            "if is_new_epoch or type(role) is not type(former):",
            "if type(role) is not type(former):",
            "a response to a request of a past epoch counts",
        ),
        _replica.mutant(
            "hears-answers-of-former-roles",
            "RaftReplica.on_response",
            "if not is_expected:",
            "if False:",
            "a response to a request of a former role counts",
        ),
        _replica.mutant(
            "flushes-behind-the-end",
            "RaftReplica.on_flushed",
            "max(log.flushed_end_offset, min(end_offset, log.end_offset))",
            "log.end_offset",
            "what was written during a flush counts as flushed",
        ),
        _answers.mutant(
            "believes-past-leaders",
            "is_settled_by_epoch",
            "answer.leader_epoch < quorum.epoch or answer.error",
            "answer.error",
            "the response of a leader of a past epoch is processed",
        ),
    )
)
