"""Rules that were once covered by no test or scenario: ISR expansion, consumer reads, group
fencing, rejected votes.
"""

from tools.mutants.mutant import Core, Mutator

READERS = ("consumers_below_high_watermark",)
LEADERS = ("partition_leader_failover_idempotent",)
ZOMBIES = ("zombie_fenced_by_generation",)
_leader_state = Mutator("partitions", "kraftsim.partitions.rules_leader")
_following = Mutator("partitions", "kraftsim.partitions.rules_follower")
_in_sync = Mutator("partitions", "kraftsim.partitions.rules_leader")
_replica = Mutator("partitions", "kraftsim.partitions.rules_replica")
_reading = Mutator("partitions", "kraftsim.partitions.rules_reading")
_committing = Mutator("groups", "kraftsim.groups.rules_committing")
_elections = Mutator("raft", "kraftsim.raft.rules_elections")
_serving = Mutator("raft", "kraftsim.raft.rules_serving")
_retention = Mutator("tiered storage", "kraftsim.tiered_storage.rules_copying")
_rules = Mutator("transactions", "kraftsim.transactions.rules_coordinator")

CORE = Core(
    mutants=(
        _leader_state.mutant(
            "joins-before-the-epoch-start",
            "LeaderState._joins_at",
            "max(high_watermark, self.epoch_start_offset)",
            "high_watermark",
            "an in-sync replica lacks acknowledged records (KAFKA-7128)",
            scenarios=LEADERS,
        ),
        _leader_state.mutant(
            "joins-though-not-eligible",
            "LeaderState.expansion",
            "if not has_enough or not self._eligible(replica_id, follower.broker_epoch):",
            "if not has_enough:",
            "AlterPartition adds a replica that the controller rejects",
            scenarios=LEADERS,
            equivalent=(
                "the controller rejects such a replica, and the leader keeps the previous ISR"
            ),
        ),
        _following.mutant(
            "cuts-no-further-than-its-beginning",
            "Following._truncate_to",
            "RestartAt(offset) if offset < self._log.local_start_offset else TruncateTo(offset)",
            "TruncateTo(max(offset, self._log.local_start_offset))",
            "a follower of an unclean leader lacks its first records, or fetches forever",
            scenarios=LEADERS,
        ),
        _in_sync.mutant(
            "takes-answers-of-earlier-partition-epochs",
            "InSyncReplicas.on_answer",
            " or partition_epoch < self.partition_epoch",
            "",
            "a replaced ISR is treated as the current one",
            scenarios=LEADERS,
            equivalent="one proposal is in flight at a time, and anything that raises the "
            "partition epoch cancels it: its response is ignored",
        ),
        _replica.mutant(
            "acknowledges-with-too-few-in-sync",
            "PartitionReplica.replicated",
            "return ErrorCode.NONE if has_enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND",
            "return ErrorCode.NONE",
            "acks=all is acknowledged with fewer in-sync replicas than required",
            scenarios=LEADERS,
            equivalent="since 3.7 the high watermark does not advance below min.insync.replicas: "
            "the request keeps waiting",
        ),
        _reading.mutant(
            "reads-past-the-high-watermark",
            "decide_read",
            "replica.last_stable_offset if reads_committed else replica.high_watermark",
            "replica.last_stable_offset if reads_committed else replica.log_end_offset",
            "a consumer returns records that may be truncated",
            scenarios=READERS,
        ),
        _committing.mutant(
            "commits-in-any-generation",
            "TransactionalCommitting.refuse",
            "return None if asked.generation_id == group.generation_id else "
            "ErrorCode.ILLEGAL_GENERATION",
            "return None",
            "a zombie with a retained membership commits records that another member has copied",
            scenarios=ZOMBIES,
        ),
        _committing.mutant(
            "commits-for-any-member",
            "TransactionalCommitting.refuse",
            "if error is not None:",
            "if False:",
            "a zombie with a reused group.instance.id commits records that its successor has "
            "copied",
            scenarios=ZOMBIES,
        ),
        _elections.mutant(
            "votes-though-the-epoch-has-a-leader",
            "_would_grant",
            "return leader_id is None and _is_complete(quorum, asked.log_end)",
            "return _is_complete(quorum, asked.log_end)",
            "two leaders of one epoch, if a majority lost its votes",
            equivalent="a leader was elected by a majority that voted in its epoch: another "
            "candidate of the epoch gets none",
        ),
        _serving.mutant(
            "gives-any-snapshot",
            "snapshot_outcome",
            "if wanted not in quorum.log.snapshots or wanted == FORMAT_SNAPSHOT:",
            "if False:",
            "a replica is referred to a missing snapshot",
            equivalent="the leader names an existing snapshot, and the replica restarts the "
            "fetch if it is deleted by then",
        ),
        _retention.mutant(
            "keeps-segments-of-forgotten-epochs",
            "expired_remotely",
            "if each.leader_epochs[-1].leader_epoch < oldest_epoch",
            "if False",
            "remote segments are kept forever after an unclean election (KIP-405)",
            equivalent=(
                "no scenario has remote storage; segments kept too long violate no guarantee"
            ),
        ),
        _rules.mutant(
            "takes-two-epochs",
            "TransactionRules._next_epoch",
            "(producer_id, epoch + 1), epoch, timeout_ms",
            "(producer_id, epoch + 2), epoch, timeout_ms",
            "epochs are exhausted twice as fast as they are allocated",
        ),
        _rules.mutant(
            "fences-by-two-epochs",
            "TransactionRules.fence",
            "else epoch + 1",
            "else epoch + 2",
            "epochs are exhausted twice as fast as transactions are aborted",
            scenarios=("transaction_timeout", "zombie_fenced_by_epoch"),
        ),
        _rules.mutant(
            "ends-by-two-epochs",
            "TransactionRules._prepared_with_bump",
            "min(facts.producer_epoch + 1, FENCING_EPOCH)",
            "min(facts.producer_epoch + 2, FENCING_EPOCH)",
            "epochs are exhausted twice as fast as transactions end (KIP-890)",
            scenarios=("transaction_timeout",),
            release="4.1",
        ),
    ),
)
