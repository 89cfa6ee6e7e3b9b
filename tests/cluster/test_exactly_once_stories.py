"""Every story of exactly-once over sockets, with little to do: what is judged in simulation holds where time and processes are real.

Most of a story over sockets is waiting, so they are played side by side.
"""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

import pytest

from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.explore.request import RunRequest
from kraftsim.explore.result import RunResult
from kraftsim.explore.run import play_request

AT_ONCE = 3
DEALS = {"transactions": 3, "records": 2, "work_ms": 1000}
COPY = {"records_per_writer": 12, "work_ms": 1000}
STORIES: dict[str, tuple[Mode, dict[str, int]]] = {
    "zombie_fenced_by_generation": (Mode.EMBEDDED, COPY),
    "coordinator_failover_in_every_state": (Mode.PROCESSES, DEALS),
    "transaction_times_out": (Mode.EMBEDDED, {}),
    "exactly_once_under_faults": (Mode.PROCESSES, COPY),
    "old_and_new_clients_commit_offsets": (Mode.EMBEDDED, COPY),
    "zombie_fenced_by_epoch": (Mode.EMBEDDED, {}),
    "end_of_a_transaction_comes_late": (Mode.EMBEDDED, DEALS),
    "marker_that_never_completes": (Mode.EMBEDDED, {}),
    "producer_per_task_against_per_thread": (Mode.EMBEDDED, {"partitions": 3, "replicas": 1, "records_per_writer": 6}),
}
"""In which mode, and with which knobs turned down; the longest first."""


def play(name: str, directory: Path) -> RunResult:
    """Play one story in a process of its own."""
    mode, workload = STORIES[name]
    return play_request(RunRequest(scenario=scenario(name), mode=mode, seed=1, workload=workload), directory / name)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[RunResult]]]:
    """All stories, under way."""
    directory = tmp_path_factory.mktemp("stories")
    with ProcessPoolExecutor(AT_ONCE, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield {name: pool.submit(play, name, directory) for name in STORIES}


@pytest.mark.parametrize("name", STORIES)
def test_a_story_of_exactly_once_comes_true_over_sockets(name: str, results: dict[str, Future[RunResult]]) -> None:
    """All its invariants hold, and those that it must exercise were exercised."""
    assert set(STORIES[name][1]) <= set(scenario(name).workload), "a knob that the story does not have changes nothing"
    result = results[name].result()
    assert (result.outcome, result.violations, result.trouble) == ("ok", (), None), "\n".join(result.lines())
