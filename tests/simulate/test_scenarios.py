"""Complete scenarios in virtual time: they are reproducible byte for byte, correct nodes keep every
guarantee, and an injected bug is found.
"""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from kraftsim.cluster.scenario import Scenario, scenarios
from kraftsim.lab.campaign.sweep import sweep
from kraftsim.lab.campaign.worker_pool import Terms
from kraftsim.lab.explore.run import run_scenario
from kraftsim.raft.rules_log import RaftLog

NAME = "producer_ids_survive_failover"
RUN_ELSEWHERE = {
    "test_edge_scenarios.py": (
        "access_and_quota_changes_under_load",
        "reassignment_under_load",
        "small_segments_with_aborted_transactions",
        "topic_recreation_under_load",
        "transaction_version_upgrade",
    ),
    "test_first_sequences.py": ("first_sequence_is_not_zero",),
    "test_migrations.py": (
        "controller_failover_during_migration",
        "migration_begun_again_with_new_quorum",
        "migration_rollback",
        "zk_to_kraft_migration",
        "zookeeper_2_8_to_latest",
    ),
    "test_producer_state_variants.py": ("producer_state_variants",),
    "test_replica_bugs.py": (
        "lost_produce_responses",
        "partition_leader_failover_idempotent",
        "producer_state_recovery",
        "topic_missing_from_metadata",
        "truncated_leader_reelected",
    ),
    "test_transaction_bugs.py": (
        "coordinator_failover_every_state",
        "delayed_end_txn",
        "exactly_once_under_faults",
        "exhausted_producer_epochs",
        "late_copy_of_transaction_end",
        "offset_commits_pre_and_post_kip_447",
        "transaction_of_group_without_members",
        "transaction_timeout",
        "transaction_timeout_during_verification",
        "zombie_fenced_by_epoch",
        "zombie_fenced_by_generation",
    ),
    "test_upgrades.py": (
        "kip_447_upgrade",
        "producer_ids_unavailable_during_upgrade",
        "unsafe_downgrade_refused",
    ),
    "test_yield_points.py": (
        "combined_nodes_failover",
        "compaction_under_load",
        "missing_remote_producer_snapshot",
    ),
}
"""Scenarios whose own tests run them without a bug, and require that they are clean: a table of
findings with the seeds that find its bugs.
"""
LEFT = [
    each for each in scenarios() if not any(each.name in names for names in RUN_ELSEWHERE.values())
]
ONE_RUN = (
    f"from kraftsim.lab.explore.run import run_scenario; print(run_scenario({NAME!r}, "
    "seed=5).events_sha256)"
)


def digest_in_another_process(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", ONE_RUN],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.strip()


@cache
def digest_here(seed: int) -> str:
    digest = run_scenario(NAME, seed=seed).events_sha256
    assert digest is not None
    return digest


def test_seed_gives_the_same_event_log_under_different_hash_seeds() -> None:
    """In two processes: own nodes and clients are deterministic on any machine and under any
    PYTHONHASHSEED.
    """
    assert digest_in_another_process("12345") == digest_here(seed=5)


def test_two_seeds_give_different_event_logs() -> None:
    """The digest depends on the seed: otherwise the test above could not fail."""
    assert digest_here(seed=5) != digest_here(seed=2)


@pytest.mark.parametrize("scenario", LEFT, ids=lambda each: each.name)
def test_every_scenario_is_clean_in_virtual_time(scenario: Scenario) -> None:
    """A scenario that correct nodes violate proves nothing about a bug; those of RUN_ELSEWHERE are
    run by their own tests.
    """
    result = run_scenario(scenario.name, seed=3)
    assert (result.outcome, result.violations, result.trouble) == ("ok", (), None), "\n".join(
        result.lines()
    )
    assert all(result.verdicts[name] == "ok" for name in scenario.must_exercise)


def test_every_other_scenario_is_named_by_the_tests_that_run_it() -> None:
    texts = {file: Path(__file__).with_name(file).read_text() for file in RUN_ELSEWHERE}
    missing = [
        (file, name)
        for file, names in RUN_ELSEWHERE.items()
        for name in names
        if f'"{name}"' not in texts[file]
    ]
    assert not missing, "run them here again"
    assert len(LEFT) + sum(map(len, RUN_ELSEWHERE.values())) == len(scenarios())


def test_sweep_finds_kafka_10533_and_the_seeds_are_clean_without_it() -> None:
    """The controller that counts unflushed records allocates a block twice after a power loss
    (KAFKA-10533).
    """
    with_bug = sweep(NAME, seeds=range(1, 4), terms=Terms(bugs=("KAFKA-10533",)), keep_going=True)
    assert {"high-watermark-flushed", "producer-id-blocks-disjoint"} <= {
        name for run in with_bug.found for name in run.invariants_violated
    }
    without = sweep(NAME, seeds=range(1, with_bug.seeds_run + 1))
    assert without.clean == without.seeds_run, "\n".join(without.lines())


def test_replay_line_of_a_finding_reproduces_it(tmp_path: Path) -> None:
    """A failing seed prints one line; that line, in a new process, gives the same violation and
    stores the run.
    """
    found = sweep(NAME, seeds=range(1, 9), terms=Terms(bugs=("KAFKA-10533",)), workers=1).found[0]
    words = found.command.split()
    words[words.index("--out") + 1] = str(tmp_path / "again")
    done = subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert all(violation in done.stdout for violation in found.violations)
    record = json.loads((tmp_path / "again" / "run.json").read_text())
    assert (record["scenario"], record["seed"], record["bugs"], record["outcome"]) == (
        NAME,
        found.seed,
        ["KAFKA-10533"],
        "violated",
    )


def test_scenario_is_clean_with_a_release_that_waits_for_blocks() -> None:
    """Brokers before 3.6 wait for their block instead of rejecting; the scenario holds for them,
    too.
    """
    result = run_scenario(NAME, seed=4, release="3.5")
    assert result.outcome == "ok", "\n".join(result.lines())


def test_failed_assertion_of_a_node_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """No invariant detects it, and the cluster may well continue without that node."""
    append = RaftLog.append

    def believes_in_short_logs(log: RaftLog, leader_epoch: int, record_count: int) -> int:
        assert log.end_offset < 100, "a log is short"
        return append(log, leader_epoch, record_count)

    monkeypatch.setattr(RaftLog, "append", believes_in_short_logs)
    result = run_scenario("quorum_under_faults", seed=1)
    assert (result.outcome, result.invariants_violated) == (
        "violated",
        ("nodes-believe-the-truth",),
    )
    assert "a log is short" in result.violations[0]
