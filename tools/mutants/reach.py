"""The scenarios that exercise each core: a mutant of the core is run with these, the most effective
first.
"""

from collections.abc import Mapping
from typing import Final

from tools.mutants.mutant import Mutant

QUORUM = "quorum_under_faults"
PROMISES = "quorum_liveness_with_majority"
PARTITIONED_LEADER = "quorum_leader_partitioned_from_voters"
ALLOCATION = "controller_failover_during_allocation"
PRODUCERS = "producer_ids_survive_failover"
ANSWERS = "lost_produce_responses"
POWER = "controller_power_loss_mid_write"
SLOW_DISKS = "controller_power_loss_slow_disks"
EXACTLY_ONCE = "exactly_once_under_faults"
LEADERS = "partition_leader_failover_idempotent"
REMEMBERED = "producer_state_recovery"
VOTERS = "voter_changes_under_faults"
ROLL_ISOLATION = "truncated_leader_reelected"
VANISHING = "topic_missing_from_metadata"
COORDINATORS = "coordinator_failover_every_state"
LATE = "transaction_timeout"
SEQUENCES = "out_of_order_sequences"
STILL = "paused_leader_with_pending_produce"
TOO_LARGE = "record_too_large"
ZOMBIES = "zombie_fenced_by_generation"
COMPACTION = "compaction_under_load"
COMPACTED = "coordinator_load_from_compacted_log"
ISR = "isr_shrink_and_expand"
POWER_OF_BROKERS = "broker_power_loss"
MIGRATION = "zk_to_kraft_migration"
MIGRATION_FAILOVER = "controller_failover_during_migration"
ROLLBACK = "migration_rollback"
NEW_QUORUM = "migration_begun_again_with_new_quorum"
ON_ZOOKEEPER = "zookeeper_faults_under_load"
ROLLING_ZOOKEEPER = "rolling_upgrade_on_zookeeper"
WITHOUT_RIGHTS = "broker_loses_cluster_action"
UPGRADE = "rolling_upgrade"

REACH: Final[Mapping[str, tuple[str, ...]]] = {
    "raft": (PROMISES, POWER, QUORUM, PARTITIONED_LEADER, VOTERS),
    "raft stores": (POWER, SLOW_DISKS, QUORUM, PRODUCERS),
    "producer ids": (ALLOCATION, POWER, PRODUCERS),
    "producer state": (SEQUENCES, ANSWERS, REMEMBERED, ROLL_ISOLATION),
    "partitions": (LEADERS, ROLL_ISOLATION, ANSWERS),
    "clients": (ANSWERS, TOO_LARGE, STILL, VANISHING, LEADERS),
    "metadata": (POWER, ALLOCATION, PRODUCERS),
    "transactions": (EXACTLY_ONCE, COORDINATORS, LATE),
    "compaction": (COMPACTION, COMPACTED),
    "groups": (ZOMBIES, COMPACTED, EXACTLY_ONCE),
    "replication": (COMPACTED, LEADERS, EXACTLY_ONCE),
    "connections": (LEADERS, EXACTLY_ONCE, ANSWERS),
    "tiered storage": (LEADERS,),
    "isr": (LEADERS, ISR, QUORUM, VOTERS),
    "logs": (LEADERS, POWER_OF_BROKERS, COMPACTION, REMEMBERED),
    "kip-848": (ZOMBIES, COMPACTED),
    "offsets": (EXACTLY_ONCE, ZOMBIES, COMPACTED),
    "migration": (MIGRATION, MIGRATION_FAILOVER, ROLLBACK, NEW_QUORUM),
    "zookeeper": (ON_ZOOKEEPER, MIGRATION, ROLLING_ZOOKEEPER),
    "security": (WITHOUT_RIGHTS, UPGRADE, MIGRATION),
    "quotas": (EXACTLY_ONCE, UPGRADE),
}


def scenarios_of(mutant: Mutant) -> tuple[str, ...]:
    """Return the scenarios with which a mutant is run."""
    return mutant.scenarios or REACH[mutant.core]
