"""The scenarios that exercise each core: a mutant of the core is run with these, the most effective first."""

from collections.abc import Mapping
from typing import Final

from mutants.mutant import Mutant

QUORUM = "quorum_under_faults"
PROMISES = "quorum_keeps_its_promises"
PARTITIONED_LEADER = "leader_cut_off_from_voters"
ALLOCATION = "controller_failover_during_allocation"
PRODUCERS = "producer_ids_survive_failover"
ANSWERS = "answers_get_lost"
POWER = "power_fails_again_and_again"
SLOW_DISKS = "power_fails_on_slow_disks"
EXACTLY_ONCE = "exactly_once_under_faults"
LEADERS = "leaders_fail_under_idempotent_load"
REMEMBERED = "producers_are_remembered"
VOTERS = "voters_come_and_go"
ROLL_ISOLATION = "old_leader_cuts_and_leads_again"
VANISHING = "topic_vanishes_from_metadata"
COORDINATORS = "coordinator_failover_in_every_state"
LATE = "transaction_times_out"
SEQUENCES = "sequences_out_of_turn"
STILL = "old_leader_stands_still"
TOO_LARGE = "some_records_are_too_large"
ZOMBIES = "zombie_fenced_by_generation"
COMPACTION = "compaction_under_load"
COMPACTED = "coordinators_read_compacted_logs"

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
}


def scenarios_of(mutant: Mutant) -> tuple[str, ...]:
    """Return the scenarios with which a mutant is run."""
    return mutant.scenarios or REACH[mutant.core]
