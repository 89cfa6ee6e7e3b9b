"""Every exactly-once scenario over sockets, with a small workload: the invariants that are checked
in simulation also hold in real processes.

A scenario over sockets mostly waits, so they run in parallel.
"""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

import pytest

from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.lab.explore.record import RunResult
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_request

AT_ONCE = 3
ORDERS = {"transactions": 3, "records": 2, "work_ms": 1000}
COPY = {"records_per_writer": 12, "work_ms": 1000}
SCENARIOS: dict[str, tuple[Mode, dict[str, int]]] = {
    "zombie_fenced_by_generation": (Mode.EMBEDDED, COPY),
    "coordinator_failover_every_state": (Mode.PROCESSES, ORDERS),
    "transaction_timeout": (Mode.EMBEDDED, {}),
    "exactly_once_under_faults": (Mode.PROCESSES, COPY),
    "offset_commits_pre_and_post_kip_447": (Mode.EMBEDDED, COPY),
    "zombie_fenced_by_epoch": (Mode.EMBEDDED, {}),
    "delayed_end_txn": (Mode.EMBEDDED, ORDERS),
    "hanging_transaction_marker": (Mode.EMBEDDED, {}),
    "producer_per_task_vs_per_thread": (
        Mode.EMBEDDED,
        {"partitions": 3, "replicas": 1, "records_per_writer": 6},
    ),
}
"""The mode, and the reduced workload parameters; the longest first."""


def run_one(name: str, directory: Path) -> RunResult:
    """Run one scenario in its own process."""
    mode, workload = SCENARIOS[name]
    return run_request(
        RunRequest(scenario=scenario(name), mode=mode, seed=1, workload=workload), directory / name
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[RunResult]]]:
    """All scenarios, running."""
    directory = tmp_path_factory.mktemp("scenarios")
    with ProcessPoolExecutor(AT_ONCE, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield {name: pool.submit(run_one, name, directory) for name in SCENARIOS}


@pytest.mark.interop
@pytest.mark.parametrize("name", SCENARIOS)
def test_an_exactly_once_scenario_passes_over_sockets(
    name: str, results: dict[str, Future[RunResult]]
) -> None:
    """All its invariants hold, and the required ones were exercised."""
    assert set(SCENARIOS[name][1]) <= set(scenario(name).workload), (
        "an unknown workload parameter has no effect"
    )
    result = results[name].result()
    assert (result.outcome, result.violations, result.trouble) == ("ok", (), None), "\n".join(
        result.lines()
    )
