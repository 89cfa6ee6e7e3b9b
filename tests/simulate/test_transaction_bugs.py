"""The exactly-once scenarios find historical transaction bugs, and the same seeds are clean without
them.
"""

from dataclasses import replace

import pytest

from kraftsim.groups.rules_offsets import CommittedOffset, GroupOffsets, TopicPartition
from kraftsim.lab.bugs.bug import bug
from kraftsim.lab.explore.run import run_scenario
from kraftsim.transactions import rules_state
from kraftsim.transactions.rules_state import (
    NO_OFFSET,
    TransactionFacts,
    TransactionShard,
    read_facts,
)
from tests.simulate.findings import directed_seeds, finds, found_at, is_clean

FINDINGS = [
    ("KAFKA-5247", "offset_commits_pre_and_post_kip_447", 1, "group-offsets-equal-log"),
    ("KAFKA-5376", "exactly_once_under_faults", 7, "read-committed-isolation"),
    ("KAFKA-6119", "transaction_timeout", 1, "transactions-atomic"),
    ("KAFKA-9346", "exactly_once_under_faults", 1, "fetched-offsets-stable"),
    ("KAFKA-9666", "zombie_fenced_by_epoch", 11, "transaction-transitions-valid"),
    ("KAFKA-9807", "exactly_once_under_faults", 1, "last-stable-offset-before-open-transactions"),
    ("KAFKA-10080", "coordinator_failover_every_state", 2, "transaction-transitions-valid"),
    ("KAFKA-14402", "transaction_timeout", 1, "fenced-producers-write-nothing"),
    ("KAFKA-14884", "transaction_timeout", 1, "fenced-producers-write-nothing"),
    ("KAFKA-15784", "zombie_fenced_by_generation", 3, "each-input-processed-once"),
    ("KAFKA-16352", "coordinator_failover_every_state", 4, "no-hanging-transactions"),
    ("KAFKA-17754", "delayed_end_txn", 4, "only-retriable-errors"),
    (
        "KAFKA-19163",
        "transaction_of_group_without_members",
        1,
        "committed-offsets-returned",
    ),
    ("KAFKA-18575", "late_copy_of_transaction_end", 16, "recovers-after-heal"),
    ("KAFKA-18660", "exhausted_producer_epochs", 2, "only-retriable-errors"),
    ("KAFKA-19367", "exhausted_producer_epochs", 2, "no-hanging-transactions"),
    (
        "KAFKA-19690",
        "transaction_timeout_during_verification",
        1,
        "timed-out-producers-fenced-by-epoch",
    ),
    ("KAFKA-19446", "late_copy_of_transaction_end", 3, "transactions-atomic"),
    ("KAFKA-19999", "coordinator_failover_every_state", 1, "recovers-after-heal"),
    ("KAFKA-20090", "exhausted_producer_epochs", 2, "only-retriable-errors"),
]


@pytest.mark.parametrize("name, scenario, seed, invariant", FINDINGS)
def test_injected_bug_is_found(name: str, scenario: str, seed: int, invariant: str) -> None:
    """The bug declares which check detects it; the seed saves runs."""
    finds(name, scenario, seed, invariant)


@pytest.mark.parametrize(
    "scenario, seed, release",
    sorted({(scenario, seed, bug(name).release) for name, scenario, seed, _ in FINDINGS}),
)
def test_without_the_bug_the_seeds_are_clean(scenario: str, seed: int, release: str) -> None:
    """With KAFKA-17754 the clean run is of transaction.version 2: the same requests arrive late,
    and end nothing.
    """
    is_clean(scenario, seed, release)


def test_transaction_version_2_fixes_a_late_end_txn() -> None:
    """KAFKA-17754 needs no switch where the cluster has version 1: an old EndTxn differs in nothing
    from a new one. As many arrive late in both runs.
    """
    seed = next(
        seed
        for seed in directed_seeds("delayed_end_txn", 5)
        if "only-retriable-errors"
        in run_scenario("delayed_end_txn", seed=seed, release="3.9").invariants_violated
    )
    before, cured = (
        run_scenario("delayed_end_txn", seed=seed, release=release) for release in ("3.9", "4.1")
    )
    assert (cured.outcome, cured.violations, cured.trouble) == ("ok", (), None), "\n".join(
        cured.lines()
    )
    late = before.faults["overtaken-request"]
    assert late == cured.faults["overtaken-request"] == (late[0],) * 3


def test_record_of_a_too_high_epoch_blocks_a_marker_before_4_0() -> None:
    """Verified with Apache Kafka 3.9.1: the transaction never ends.

    Since 4.0 the record is rejected, and the scenario is clean.
    """
    stuck = run_scenario("hanging_transaction_marker", seed=1, release="3.9")
    assert stuck.trouble is not None and "marker" in stuck.trouble
    assert run_scenario("hanging_transaction_marker", seed=1).outcome == "ok"


@pytest.mark.parametrize(
    ("scenario", "affected", "fixed", "seed", "invariant"),
    [
        ("late_batch_after_abort", "3.5", "3.6", 1, "recovers-after-heal"),
        ("late_copy_of_transaction_end", "3.9", "4.2", 5, "read-committed-isolation"),
        ("late_copy_of_transaction_end", "4.1", "4.2", 3, "transactions-atomic"),
        ("exhausted_producer_epochs", "4.2", "4.3", 2, "only-retriable-errors"),
    ],
)
def test_late_request_shows_the_bug_of_a_release(
    scenario: str, affected: str, fixed: str, seed: int, invariant: str
) -> None:
    """KAFKA-14402, KAFKA-17754, KAFKA-19446 and KAFKA-20090, without a switch; Apache Kafka does
    the same (docs/replayed-bugs.md).
    """
    is_clean(scenario, found_at(scenario, seed, invariant, release=affected), fixed)


def keeps_the_first_record(
    shard: TransactionShard,
    transactional_id: str,
    facts: TransactionFacts,
    record_offset: int = NO_OFFSET,
) -> None:
    """The bug: the first record of each id wins."""
    shard.entries.setdefault(
        transactional_id, shard.entry_class(transactional_id, facts, record_offset)
    )


def test_coordinator_that_loads_an_old_record_is_found_at_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TransactionShard, "learn", keeps_the_first_record)
    result = run_scenario("coordinator_failover_every_state", seed=4)
    assert result.invariants_violated == ("coordinator-transactions-equal-log",)


def test_coordinator_that_loads_half_of_a_record_is_found_at_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        rules_state, "read_facts", lambda value: replace(read_facts(value), partitions=())
    )
    result = run_scenario("coordinator_failover_every_state", seed=4)
    assert result.invariants_violated == ("coordinator-transactions-equal-log",)


def keeps_the_first_commit(
    offsets: GroupOffsets, partition: TopicPartition, stored: CommittedOffset
) -> bool:
    """The bug: the first commit of each partition wins."""
    offsets.committed.setdefault(partition, stored)
    return True


def test_group_coordinator_that_loads_an_old_commit_is_found_at_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(GroupOffsets, "replay", keeps_the_first_commit)
    result = run_scenario("zombie_fenced_by_generation", seed=1)
    assert result.invariants_violated == (
        "group-offsets-equal-log",
        "loaded-offsets-equal-log",
    )
