"""Rules that no test and no story defended once: who joins the replicas in sync, what consumers read, whom a group fences, what a voter refuses."""

from mutants.mutant import Core, Workshop

READERS = ("readers_stop_at_the_high_watermark",)
LEADERS = ("leaders_fail_under_idempotent_load",)
ZOMBIES = ("zombie_fenced_by_generation",)
_reign = Workshop("partitions", "kraftsim.core.partitions.reign")
_following = Workshop("partitions", "kraftsim.core.partitions.following")
_in_sync = Workshop("partitions", "kraftsim.core.partitions.in_sync_replicas")
_replica = Workshop("partitions", "kraftsim.core.partitions.partition_replica")
_reading = Workshop("partitions", "kraftsim.core.partitions.reading")
_committing = Workshop("groups", "kraftsim.core.groups.transactional_committing")
_elections = Workshop("raft", "kraftsim.core.raft.elections")
_serving = Workshop("raft", "kraftsim.core.raft.serving")
_retention = Workshop("tiered storage", "kraftsim.core.tiered_storage.remote_retention")
_rules = Workshop("transactions", "kraftsim.core.transactions.transaction_rules")

CORE = Core(
    mutants=(
        _reign.mutant(
            "joins-before-the-epoch-start",
            "Reign._joins_at",
            "max(high_watermark, self.epoch_start_offset)",
            "high_watermark",
            "a replica in sync lacks acknowledged records (KAFKA-7128)",
            scenarios=LEADERS,
        ),
        _reign.mutant(
            "joins-though-not-eligible",
            "Reign.expansion",
            "if not has_enough or not self._eligible(replica_id, follower.broker_epoch):",
            "if not has_enough:",
            "the controller is asked for a replica that it refuses",
            scenarios=LEADERS,
            equivalent="the controller refuses such a replica, and the leader goes on from what was agreed before",
        ),
        _following.mutant(
            "cuts-no-further-than-its-beginning",
            "Following._cut_to",
            "RestartAt(offset) if offset < self._log.local_start_offset else CutTo(offset)",
            "CutTo(max(offset, self._log.local_start_offset))",
            "a follower of an unclean leader lacks its first records, or asks for ever",
            scenarios=LEADERS,
        ),
        _in_sync.mutant(
            "takes-answers-of-earlier-partition-epochs",
            "InSyncReplicas.on_answer",
            " or partition_epoch < self.partition_epoch",
            "",
            "a set that was replaced since is taken for the present one",
            scenarios=LEADERS,
            equivalent="one proposal is under way at a time, and whatever raises the partition epoch takes it away: its answer is passed over",
        ),
        _replica.mutant(
            "acknowledges-with-too-few-in-sync",
            "PartitionReplica.replicated",
            "return ErrorCode.NONE if has_enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND",
            "return ErrorCode.NONE",
            "acks=all is acknowledged with fewer replicas in sync than demanded",
            scenarios=LEADERS,
            equivalent="since 3.7 the high watermark stands still while too few are in sync: what waits goes on waiting",
        ),
        _reading.mutant(
            "reads-past-the-high-watermark",
            "decide_read",
            "replica.last_stable_offset if reads_committed else replica.high_watermark\n    return ReadBounds",
            "replica.last_stable_offset if reads_committed else replica.log_end_offset\n    return ReadBounds",
            "a consumer returns records that may be truncated",
            scenarios=READERS,
        ),
        _committing.mutant(
            "commits-in-any-generation",
            "TransactionalCommitting.refuse",
            "return None if asked.generation_id == group.generation_id else ErrorCode.ILLEGAL_GENERATION",
            "return None",
            "a zombie whose place is kept commits what another member has copied",
            scenarios=ZOMBIES,
        ),
        _committing.mutant(
            "commits-for-any-member",
            "TransactionalCommitting.refuse",
            "if error is not None:",
            "if False:",
            "a zombie whose group.instance.id is another's commits what that one has copied",
            scenarios=ZOMBIES,
        ),
        _elections.mutant(
            "votes-though-the-epoch-has-a-leader",
            "_would_grant",
            "return leader_id is None and _is_complete(quorum, asked.log_end)",
            "return _is_complete(quorum, asked.log_end)",
            "two leaders of one epoch, where a majority forgot whom it voted for",
            equivalent="a leader was elected by a majority that has voted in its epoch: another candidate of the same epoch gets none",
        ),
        _serving.mutant(
            "gives-any-snapshot",
            "snapshot_outcome",
            "if wanted not in quorum.log.snapshots or wanted == FORMAT_SNAPSHOT:",
            "if False:",
            "a replica is promised a snapshot that is not there",
            equivalent="whoever asks was told of a snapshot by the leader, and asks again from the start where it is gone by then",
        ),
        _retention.mutant(
            "keeps-segments-of-forgotten-epochs",
            "expired_remotely",
            "if each.leader_epochs[-1].leader_epoch < oldest_epoch",
            "if False",
            "remote segments stay for ever after an unclean election (KIP-405)",
            equivalent="no story has a remote store; segments that are kept too long break no promise",
        ),
        _rules.mutant(
            "takes-two-epochs",
            "TransactionRules._next_epoch",
            "(producer_id, epoch + 1), epoch, timeout_ms",
            "(producer_id, epoch + 2), epoch, timeout_ms",
            "epochs are used up twice as fast as they are given",
        ),
        _rules.mutant(
            "fences-by-two-epochs",
            "TransactionRules.fence",
            "else epoch + 1",
            "else epoch + 2",
            "epochs are used up twice as fast as transactions are aborted",
            scenarios=("transaction_times_out", "zombie_fenced_by_epoch"),
        ),
        _rules.mutant(
            "ends-by-two-epochs",
            "TransactionRules._decided_with_bump",
            "min(facts.producer_epoch + 1, FENCING_EPOCH)",
            "min(facts.producer_epoch + 2, FENCING_EPOCH)",
            "epochs are used up twice as fast as transactions end (KIP-890)",
            scenarios=("transaction_times_out",),
            release="4.1",
        ),
    ),
)
