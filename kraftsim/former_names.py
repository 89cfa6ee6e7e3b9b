"""Names of 0.1 that 0.2 replaced: scenarios, invariants, kinds of faults and of events, and
parameters of workloads.

A kept `replay.json`, a script or a habit goes on working for one release: the look-up of a former
name gives the present entry and a `FormerNameWarning` that says its name. Delete this module, and
what refers to it, in 0.3.
"""

import warnings
from collections.abc import Mapping
from typing import Final

REMOVED_IN: Final = "0.3"
SCENARIOS: Final[Mapping[str, str]] = {
    "a_disk_cannot_be_trusted": "controller_disk_corruption",
    "administrators_work_while_leaders_fall": "admin_requests_during_controller_failover",
    "answers_get_lost": "lost_produce_responses",
    "broker_without_rights": "broker_loses_cluster_action",
    "changes_in_a_quiet_cluster": "metadata_changes_in_idle_cluster",
    "coordinator_failover_in_every_state": "coordinator_failover_every_state",
    "coordinators_read_compacted_logs": "coordinator_load_from_compacted_log",
    "downgrade_refused": "unsafe_downgrade_refused",
    "empty_snapshot_and_a_new_id": "empty_snapshot_unknown_producer_id",
    "empty_snapshot_and_silence": "empty_snapshot_silent_duplicate",
    "end_of_a_transaction_comes_late": "delayed_end_txn",
    "every_line_exactly_once": "idempotent_producers_under_kill",
    "expelled_while_it_waits": "member_expelled_during_fetch",
    "from_zookeeper_to_the_newest": "zookeeper_2_8_to_latest",
    "isr_shrinks_and_grows": "isr_shrink_and_expand",
    "large_changes_in_mid_write": "torn_large_metadata_records",
    "leader_cut_off_from_voters": "quorum_leader_partitioned_from_voters",
    "leaders_fail_under_idempotent_load": "partition_leader_failover_idempotent",
    "marker_that_never_completes": "hanging_transaction_marker",
    "missing_snapshot_replayed": "missing_remote_producer_snapshot",
    "no_controller_for_minutes": "controller_unreachable_for_minutes",
    "old_and_new_clients_commit_offsets": "offset_commits_pre_and_post_kip_447",
    "old_leader_cuts_and_leads_again": "truncated_leader_reelected",
    "old_leader_stands_still": "paused_leader_with_pending_produce",
    "power_fails_again_and_again": "controller_power_loss_mid_write",
    "power_fails_at_one_broker": "broker_power_loss",
    "power_fails_on_slow_disks": "controller_power_loss_slow_disks",
    "power_fails_where_all_is_flushed": "broker_power_loss_flush_every_batch",
    "power_fails_while_disks_fall_behind": "controller_power_loss_write_backlog",
    "producer_per_task_against_per_thread": "producer_per_task_vs_per_thread",
    "producers_are_remembered": "producer_state_recovery",
    "quorum_keeps_its_promises": "quorum_liveness_with_majority",
    "readers_stop_at_the_high_watermark": "consumers_below_high_watermark",
    "replica_loses_its_disk": "replica_disk_loss",
    "rollback_from_migration": "migration_rollback",
    "rolling_restart_of_all_brokers": "rolling_restart",
    "sequences_out_of_turn": "out_of_order_sequences",
    "some_records_are_too_large": "record_too_large",
    "tiered_after_an_upgrade": "tiered_storage_after_upgrade",
    "time_outs_are_too_short": "election_timeouts_too_short",
    "topic_vanishes_from_metadata": "topic_missing_from_metadata",
    "transaction_times_out": "transaction_timeout",
    "two_machines_with_one_broker_id": "duplicate_broker_id",
    "upgrade_without_producer_ids": "producer_ids_unavailable_during_upgrade",
    "voters_come_and_go": "voter_changes_under_faults",
    "zookeeper_fails_under_load": "zookeeper_faults_under_load",
}
INVARIANTS: Final[Mapping[str, str]] = {
    "batches-wait-their-turn": "early-batches-wait",
    "cut-voters-count-no-more": "truncated-voters-record-reverted",
    "durable-metadata-stays": "flushed-metadata-retained",
    "elections-keep-time": "election-timeouts-respected",
    "every-input-copied-once": "each-input-processed-once",
    "high-watermark-told-in-order": "high-watermark-monotonic-across-epochs",
    "incarnations-begin-anew": "broker-epoch-per-incarnation",
    "known-transactions-equal-log": "coordinator-transactions-equal-log",
    "leader-log-in-order": "leader-log-contiguous",
    "leaders-give-up-unheard": "resignation-only-below-majority",
    "leaders-have-a-majority": "leader-elected-by-majority",
    "local-segments-go-after-copies": "local-segments-deleted-after-upload",
    "markers-agree-with-coordinators": "markers-match-coordinator-decisions",
    "metadata-copies-noted": "flushed-metadata-has-origin",
    "metadata-log-in-one-piece": "metadata-log-contiguous",
    "metadata-log-monotonic": "next-producer-id-monotonic",
    "new-controllers-hear-brokers-out": "new-controller-awaits-heartbeats",
    "no-transaction-hangs": "no-hanging-transactions",
    "offsets-told-are-stable": "fetched-offsets-stable",
    "one-block-request-at-a-time": "one-block-request-in-flight",
    "partition-high-watermark-grows": "partition-high-watermark-monotonic",
    "past-epochs-refused": "stale-epochs-refused",
    "producer-id-block-given-when-committed": "producer-id-block-allocated-after-commit",
    "producer-id-block-to-present-incarnation": "producer-id-block-to-current-incarnation",
    "producer-snapshot-of-appended-only": "producer-snapshot-below-its-offset",
    "quorum-state-taken-up": "quorum-state-restored",
    "read-committed-reads-committed-only": "read-committed-isolation",
    "rebuilt-producers-equal": "rebuilt-producer-state-equal",
    "replicas-join-beyond-epoch-start": "isr-joined-after-epoch-start",
    "requests-are-understood": "requests-well-formed",
    "settles-after-heal": "recovers-after-heal",
    "snapshot-of-committed-only": "metadata-snapshot-committed-only",
    "transaction-states-follow": "transaction-transitions-valid",
    "vote-stored-before-told": "vote-stored-before-sent",
    "voters-ask-first": "pre-vote-before-election",
    "voters-count-when-written": "voter-set-effective-when-appended",
}
VERBS: Final[Mapping[str, str]] = {"cut": "isolate"}
FAULTS: Final[Mapping[str, str]] = {"connect-time-out": "connect-timeout"}
EVENTS: Final[Mapping[str, str]] = {
    "BrokerCame": "BrokerJoined",
    "BrokerWent": "BrokerLeft",
    "BrokersTold": "BrokersNotified",
    "CopyingFailed": "ReplicationFailed",
    "FaultBit": "FaultTookEffect",
    "FaultFired": "FaultInjected",
    "HighWatermarkTold": "HighWatermarkReported",
    "LeaderUnheard": "CheckQuorumFailed",
    "LeasedLogCut": "LeasedLogTruncated",
    "OffsetTold": "OffsetReturned",
    "RecordCalledDuplicate": "RecordReportedDuplicate",
    "VoteTold": "VoteSent",
}
WORKLOAD: Final[Mapping[str, str]] = {
    "askers": "requesters",
    "dealers": "order_apps",
    "ids_per_asker": "ids_per_requester",
}


class FormerNameWarning(FutureWarning):
    """Something was looked up by a name that it had in an earlier release."""


def present_name(former: Mapping[str, str], name: str, what: str) -> str:
    """Return what an entry is called now; '-' and '_' are alike.

    Warns with FormerNameWarning if that is another name.
    """
    key = name.lower().replace("-", "_")
    present = {old.lower().replace("-", "_"): new for old, new in former.items()}.get(key)
    if present is None:
        return name
    warnings.warn(
        f"the {what} {name} is called {present} now; the former name ends with {REMOVED_IN}",
        FormerNameWarning,
        stacklevel=3,
    )
    return present
