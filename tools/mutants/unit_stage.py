"""The unit stage: runs the tests of a mutant's core before any scenario.

They take seconds, and detect most mutants.

The results distinguish what a test detects from what the campaign detects.
"""

import os
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pytest

from kraftsim.lab.campaign.cpu_limit import cpu_limit
from tools.mutants.mutant import Mutant
from tools.mutants.patching import applied

PROJECT_ROOT = Path(__file__).parents[2]
ENDLESS = "did not end"
COLLECTING_CPU_SECONDS = 60.0
TEST_CPU_SECONDS = 8.0
"""More than four times the CPU time of any test of a core."""

TESTS: Final[Mapping[str, tuple[str, ...]]] = {
    "raft": (
        "core/test_raft_log.py",
        "core/test_following.py",
        "core/test_elections.py",
        "core/test_quorum_scripts.py",
        "core/test_quorum.py",
        "core/test_leader_epochs.py",
        "core/test_returned_high_watermark.py",
        "core/test_metadata_log.py",
        "core/test_voter_changes.py",
        "core/test_voter_rejections.py",
    ),
    "raft stores": (
        "node/test_raft_node.py",
        "node/test_metadata_store.py",
        "node/test_log.py",
        "node/test_log_recovery.py",
        "core/test_metadata_log.py",
        "node/test_controller_power_loss.py",
    ),
    "producer ids": (
        "core/test_block_client_scripts.py",
        "core/test_producer_ids.py",
        "core/test_timeline.py",
        "node/test_metadata_writer.py",
        "node/test_broker_producer_ids.py",
    ),
    "producer state": (
        "core/test_sequence.py",
        "core/test_producer_state.py",
        "core/test_producer_snapshot.py",
        "core/test_transactions_replicated.py",
    ),
    "partitions": (
        "core/test_segments.py",
        "core/test_partition_replica.py",
        "core/test_leader_epochs.py",
        "core/test_joining_replicas.py",
        "core/test_replication_scripts.py",
        "core/test_replication.py",
    ),
    "clients": (
        "core/test_client_scripts.py",
        "core/test_idempotent_producer.py",
        "core/test_transactional_producer.py",
    ),
    "metadata": (
        "core/test_broker_lifecycle.py",
        "core/test_snapshot.py",
        "core/test_image_difference.py",
        "core/test_partition_rules.py",
    ),
    "transactions": (
        "core/test_transaction_rules.py",
        "core/test_marker_queue.py",
        "core/test_transactions_replicated.py",
    ),
    "compaction": (
        "core/test_cleaning.py",
        "node/test_compaction.py",
        "node/test_coordinator_compaction.py",
    ),
    "groups": (
        "core/test_group_member.py",
        "core/test_groups.py",
        "core/test_group_scripts.py",
        "core/test_transactional_offsets.py",
    ),
    "tiered storage": ("tiered_storage/test_metadata.py",),
    "replication": (
        "node/test_dropped_fetchers.py",
        "core/test_fetch_sessions.py",
        "core/test_partition_replica.py",
        "core/test_joining_replicas.py",
        "core/test_replication_scripts.py",
    ),
    "isr": (
        "core/test_partition_rules.py",
        "core/test_broker_lifecycle.py",
        "core/test_joining_replicas.py",
    ),
    "logs": ("core/test_segments.py", "core/test_cleaning.py", "core/test_batch_rules.py"),
    "kip-848": ("core/test_consumer_groups.py", "core/test_assignment_epochs.py"),
    "offsets": ("core/test_group_offsets.py", "core/test_transactional_offsets.py"),
    "migration": ("core/test_migration_driver.py", "core/test_migration_scripts.py"),
    "zookeeper": (
        "core/test_propagation.py",
        "core/test_received_metadata.py",
        "core/test_znode_translations.py",
    ),
    "security": ("core/test_security.py", "core/test_rule_search.py"),
    "quotas": ("core/test_client_quotas_in_use.py", "core/test_quotas_and_credentials.py"),
    "connections": ("node/test_connection.py", "node/test_large_frames.py"),
}
"""The test files of a core, the fastest first: none that would fail on a busy machine."""


class Detected(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the tests of a core; `test` is empty if none failed."""

    cpu_seconds: float
    test: str = ""
    said: str = ""


class _Listener:
    """A pytest plugin that records the current test, and the first one that fails."""

    def __init__(self, restart: Callable[[], None]) -> None:
        self.current = self.test = self.said = ""
        self._restart_limit = restart

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test starts: restart its time limit."""
        self.current = nodeid
        self._restart_limit()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test has ended."""
        self._report(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file was collected."""
        self._report(report)

    def _report(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed and not self.test:
            self.test = report.nodeid
            said = [
                line[1:].strip()
                for line in report.longreprtext.splitlines()
                if line.startswith("E ")
            ]
            self.said = said[0] if said else report.longreprtext.strip().splitlines()[-1]


def run_unit_stage(
    chosen: Sequence[Mutant], *, cpu_seconds_max: float = TEST_CPU_SECONDS
) -> list[Detected]:
    """Run the tests of each mutant's core, in a process that is forked after all of them were
    collected and imported.

    A test that takes longer than `cpu_seconds_max` has detected the mutant, too.
    """
    for core in dict.fromkeys(each.core for each in chosen):
        _run(_files(core), COLLECTING_CPU_SECONDS, "--collect-only")
    return [_in_a_fork(each, cpu_seconds_max) for each in chosen]


def _in_a_fork(mutant: Mutant, cpu_seconds_max: float) -> Detected:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            with os.fdopen(writing, "wb") as out:
                out.write(msgspec.json.encode(_look(mutant, cpu_seconds_max)))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return msgspec.json.decode(said, type=Detected)


def _look(mutant: Mutant, cpu_seconds_max: float) -> Detected:
    """Apply the mutant and run the tests of its core until one fails."""
    with applied(mutant):
        return _run(_files(mutant.core), cpu_seconds_max)


def _files(core: str) -> list[str]:
    return [str(PROJECT_ROOT / "tests" / file) for file in TESTS[core]]


def failing_without_mutant(tests: Iterable[str]) -> list[str]:
    """Return the tests that fail without any mutant: their failures prove nothing."""
    return [test for test in tests if _run([str(PROJECT_ROOT / test)], COLLECTING_CPU_SECONDS).test]


def _run(what: Sequence[str], cpu_seconds_max: float, *more: str) -> Detected:
    began = time.process_time()
    options = [
        "-x",
        "-q",
        "--no-header",
        "--tb=short",
        "-m",
        "not interop",
        f"--rootdir={PROJECT_ROOT}",
        "-c",
        str(PROJECT_ROOT / "pyproject.toml"),
        "-p",
        "no:cacheprovider",
    ]
    with cpu_limit(COLLECTING_CPU_SECONDS) as cut:
        listener = _Listener(lambda: cut.restart(cpu_seconds_max))
        ended = pytest.main([*options, *more, *what], plugins=[listener])
    spent = time.process_time() - began
    if not listener.test and cut.is_exceeded:
        return Detected(cpu_seconds=spent, test=listener.current, said=ENDLESS)
    assert listener.test or ended is pytest.ExitCode.OK, (
        f"pytest ended with {ended!r} and named no test: is there one to run?"
    )
    return Detected(cpu_seconds=spent, test=listener.test, said=listener.said[:400])
