"""Many seeds: spread over processes, always the same first finding, kept and replayed; a run that
proves nothing is not called clean.
"""

import asyncio
import gc
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from kraftsim.cli.main import kraftsim
from kraftsim.cli.progress import deadline, faults, line
from kraftsim.cluster.scenario import (
    LivenessLost,
    Mode,
    ScenarioEnvironment,
    ScenarioFailed,
    scenario,
)
from kraftsim.lab.campaign.identity import IdentityResult, check_identity
from kraftsim.lab.campaign.sweep import SweepProgress, campaign, sweep
from kraftsim.lab.campaign.worker_pool import CampaignJob, Terms
from kraftsim.lab.explore import blocking
from kraftsim.lab.explore.replay import read_replay
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_request
from kraftsim.lab.faults.fault import AtTime, Fault, OnState
from kraftsim.world.simulated import Simulation

RunScenario = Callable[[ScenarioEnvironment], Awaitable[None]]
NAME = "producer_ids_survive_failover"
CHEAP = "idempotent_producers_under_kill"
BUG = "KAFKA-10533"
DIES = """
import os, kraftsim.lab.campaign.worker_pool as pool
play = pool.carry_out
pool.carry_out = lambda each, fork: os._exit(9) if each.seed == 2 else play(each, fork)
"""
DEPENDS_ON_THE_HASH_SEED = """
import kraftsim.lab.explore.request as search
settings_of = search.settings_of
search.settings_of = lambda *run: {
    **settings_of(*run), "broker.heartbeat.interval.ms": str(300 + hash("x") % 100)
}
"""


def kraftsim_with(start_up: str, directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command in processes that start with extra code."""
    (directory / "sitecustomize.py").write_text(start_up)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(directory), os.getcwd()])}
    return subprocess.run(
        [sys.executable, "-m", "kraftsim", *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


def test_first_finding_is_the_same_with_any_number_of_workers(tmp_path: Path) -> None:
    """A campaign stops at its first violation, that of the lowest seed; the run is kept, and its
    replay file reproduces it byte for byte.
    """
    alone = sweep(NAME, seeds=range(1, 5), terms=Terms(bugs=(BUG,)), workers=1)
    together = sweep(NAME, seeds=range(1, 5), terms=Terms(bugs=(BUG,)), workers=2, out=tmp_path)
    assert [run.seed for run in together.found] == [run.seed for run in alone.found]
    found = together.found[0]
    assert (found.violations, found.events_sha256) == (
        alone.found[0].violations,
        alone.found[0].events_sha256,
    )
    assert found.out == str(tmp_path / f"{NAME}-{found.seed}")
    again = run_request(read_replay(Path(found.out)).request())
    assert (again.invariants_violated, again.events_sha256) == (
        found.invariants_violated,
        found.events_sha256,
    )


def test_fault_kind_that_never_takes_effect_fails_the_campaign(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is ever sent from one broker to another here, so a slow link between them tests
    nothing: that must not pass as clean.
    """
    idle = Fault(kind="slow-link", target="broker-1>broker-2", trigger=AtTime(at_ms=1))
    monkeypatch.setattr(RunRequest, "schedule", lambda request: (idle,) * 20)
    done = CliRunner().invoke(
        kraftsim, ["sweep", CHEAP, "--seeds", "1", "--jobs", "1"], standalone_mode=False
    )
    assert "fault slow-link was never effective" in done.output
    assert done.return_value == 2
    monkeypatch.setattr(RunRequest, "schedule", lambda request: (idle,) * 19)
    few = campaign((CHEAP,), seeds=[1], jobs=1)
    assert (few.idle_kinds, few.is_inconclusive) == ((), False), (
        "a few of a kind prove nothing about it"
    )


def test_campaign_resumes_where_its_journal_ends(tmp_path: Path) -> None:
    """Recorded seeds are not run again; a torn last line is the result of a killed campaign."""
    journal = tmp_path / "journal.jsonl"
    first = campaign((CHEAP,), seeds=range(1, 3), jobs=1, journal=journal)
    journal.write_bytes(journal.read_bytes() + b'{"result":')
    seen: list[tuple[int, int]] = []
    both = campaign(
        (CHEAP,),
        seeds=range(1, 4),
        jobs=1,
        journal=journal,
        report=lambda progress: seen.append((progress.seeds, progress.resumed)),
    )
    assert (first.sweeps[0].seeds_run, both.sweeps[0].seeds_run) == (2, 3)
    assert seen[-1] == (3, 2)
    assert len(journal.read_bytes().splitlines()) == 4
    with pytest.raises(ValueError, match="another release, other bugs"):
        campaign((CHEAP,), seeds=range(1, 4), terms=Terms(bugs=(BUG,)), journal=journal)


def test_scenarios_share_a_campaign_and_a_budget_ends_it() -> None:
    """Seed by seed, so that each scenario has had about as many runs when the time is up."""
    left = iter([False, False, False, True])
    result = campaign((CHEAP, NAME), seeds=range(1, 100), jobs=1, is_over=lambda: next(left))
    assert [(each.scenario, each.seeds_run) for each in result.sweeps] == [(CHEAP, 2), (NAME, 1)]
    assert deadline(0.0)() and not deadline(None)() and not deadline(60.0)()


def test_worker_that_dies_costs_one_seed_and_is_a_finding(tmp_path: Path) -> None:
    """A crash of the process that runs a seed must neither pass as clean nor end the campaign."""
    words = (
        "sweep",
        CHEAP,
        "--seeds",
        "4",
        "--jobs",
        "2",
        "--keep-going",
        "--json",
        str(tmp_path / "found.json"),
    )
    done = kraftsim_with(DIES, tmp_path, *words)
    assert done.returncode == 1, done.stdout + done.stderr
    (found,) = json.loads((tmp_path / "found.json").read_text())["sweeps"]
    assert (found["seeds_run"], found["clean"]) == (4, 3)
    assert [(run["seed"], run["trouble"]) for run in found["found"]] == [
        (2, "its worker process died (exit code 9)")
    ]


async def fails(stage: ScenarioEnvironment) -> None:
    raise ScenarioFailed("nothing was written")


async def settles_never(stage: ScenarioEnvironment) -> None:
    raise LivenessLost("no leader within 10 s")


async def waits_for_ever(stage: ScenarioEnvironment) -> None:
    await asyncio.Event().wait()


async def turns_for_ever(stage: ScenarioEnvironment) -> None:
    while True:
        await asyncio.sleep(0)


async def is_cancelled(stage: ScenarioEnvironment) -> None:
    raise asyncio.CancelledError


async def exits(stage: ScenarioEnvironment) -> None:
    raise SystemExit(3)


async def is_wrong(stage: ScenarioEnvironment) -> None:
    raise KeyError("a mistake of the scenario")


async def blocks(stage: ScenarioEnvironment) -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("run", "trouble"),
    [
        (fails, "ScenarioFailed: nothing was written"),
        (settles_never, "LivenessLost: no leader"),
        (waits_for_ever, "SimulationTimeLimit"),
        (turns_for_ever, "SimulationLivelock"),
        (is_cancelled, "CancelledError"),
        (exits, "SystemExit in the harness: 3"),
        (is_wrong, "KeyError in the harness: 'a mistake of the scenario'"),
        (blocks, "Blocked"),
    ],
)
def test_sweep_stops_at_a_seed_without_a_verdict_and_lists_it(
    monkeypatch: pytest.MonkeyPatch, run: RunScenario, trouble: str
) -> None:
    """In the process of the sweep, too, which must not end with it."""
    monkeypatch.setattr(blocking, "CPU_SECONDS", 1.0)
    usual = CampaignJob.request

    def request(job: CampaignJob) -> RunRequest:
        asked = usual(job)
        return replace(asked, scenario=replace(asked.scenario, run=run, limit_seconds=20.0))

    monkeypatch.setattr(CampaignJob, "request", request)
    result = campaign((CHEAP,), seeds=range(1, 4), jobs=1)
    (found,) = result.sweeps[0].found
    assert (found.seed, found.outcome) == (1, "failed")
    assert trouble in (found.trouble or "")
    assert result.has_violations and f"seed 1: {found.trouble}" in result.sweeps[0].troubles
    assert any(trouble in line for line in result.lines())


@pytest.fixture(scope="module")
def compared() -> IdentityResult:
    """Two seeds in four processes each."""
    return check_identity((CHEAP,), seeds=range(1, 3))


def test_same_seed_gives_the_same_bytes_in_four_processes(compared: IdentityResult) -> None:
    """Two hash seeds, in ascending and descending order of seeds."""
    assert (compared.seeds, compared.runs, compared.differing) == (2, 8, ())


@pytest.mark.interop
def test_compared_runs_may_have_a_smaller_workload(compared: IdentityResult) -> None:
    """A workload parameter is set in all processes alike; an unknown one is reported."""
    less = check_identity((CHEAP,), seeds=range(1, 3), terms=Terms(workload={"lines": 20}))
    assert (less.runs, less.differing) == (8, ())
    assert less.events < compared.events
    words = ["sweep", CHEAP, "--seeds", "1", "--check-identity", "--work", "no_such_knob=1"]
    assert CliRunner().invoke(kraftsim, words).exit_code == 3


def test_campaign_with_another_workload_is_replayed_with_it(tmp_path: Path) -> None:
    """Its parameters are in the line that replays a finding, and a journal can be resumed only with
    the same ones.
    """
    journal, words = (
        tmp_path / "journal.jsonl",
        ["sweep", NAME, "--seeds", "1", "--bug", BUG, "--jobs", "1"],
    )
    done = CliRunner().invoke(
        kraftsim,
        [
            *words,
            "--work",
            "requesters=1",
            "--resume",
            str(journal),
            "--out",
            str(tmp_path / "found"),
        ],
    )
    command = next(
        line.split("replay: ")[1] for line in done.output.splitlines() if "replay: " in line
    )
    assert " --work requesters=1 " in command
    again = command.split()[1:]
    place = Path(again[again.index("--out") + 1])
    assert place == tmp_path / "found" / f"{NAME}-1-again", "beside the run that was kept"
    assert "was never exercised" not in done.output, "the campaign ended at its finding"
    assert "violated: " in CliRunner().invoke(kraftsim, again).output
    assert read_replay(place).request().work()["requesters"] == 1
    assert "other work" in CliRunner().invoke(kraftsim, [*words, "--resume", str(journal)]).output


@pytest.mark.interop
def test_dependence_on_the_hash_seed_is_found_with_its_first_event(tmp_path: Path) -> None:
    """Otherwise the test above could not fail."""
    done = kraftsim_with(
        DEPENDS_ON_THE_HASH_SEED, tmp_path, "sweep", CHEAP, "--seeds", "1", "--check-identity"
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 of 1 seeds differ" in done.stdout
    assert "first event" in done.stdout


@pytest.mark.interop
def test_compared_run_with_a_violation_is_reported(tmp_path: Path) -> None:
    """Four equal logs of a run that violates an invariant are still a failure."""
    done = kraftsim_with(
        "",
        tmp_path,
        "sweep",
        NAME,
        "--seeds",
        "1",
        "--bug",
        BUG,
        "--work",
        "requesters=1",
        "--check-identity",
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "0 of 1 seeds differ" in done.stdout
    assert "1 not clean" in done.stdout
    assert f"replay: kraftsim scenario {NAME} --mode sim --seed 1" in done.stdout


@pytest.mark.parametrize(
    "option",
    [["--jobs", "2"], ["--out", "found"], ["--resume", "journal"], ["--spark", "local[2]"]],
)
def test_options_without_effect_on_a_comparison_are_rejected(option: list[str]) -> None:
    """Instead of silently ignored."""
    done = CliRunner().invoke(
        kraftsim, ["sweep", CHEAP, "--seeds", "1", "--check-identity", *option]
    )
    assert done.exit_code == 3
    assert option[0] in done.output


def test_progress_line_has_rate_remaining_time_and_findings() -> None:
    """One human-readable line while it runs."""
    progress = SweepProgress(
        total=100, seeds=30, resumed=10, cpu_seconds=15.0, violated=1, faults={"kill": (5, 4, 3)}
    )
    assert line(progress, 10.0) == "30/100 seeds, 2.0/s, 2.00 per CPU second, 0:35 left, 1 violated"
    assert faults(progress) == "armed/fired/bit: kill 5/4/3"


def test_run_leaves_nothing_behind_in_its_process() -> None:
    """Workers run thousands of seeds: a table that retains every simulation would fill the
    memory.
    """
    trigger = OnState(states=("leader",))
    whole = (
        Fault(kind="pause", target="leader", trigger=AtTime(at_ms=500), params={"duration_ms": 50}),
        Fault(kind="slow-disk", trigger=trigger),
    )
    result = run_request(RunRequest(scenario=scenario(CHEAP), mode=Mode.SIM, seed=1, faults=whole))
    assert result.faults["pause"][1] == 1, "\n".join(result.lines())
    gc.collect()
    assert [each for each in gc.get_objects() if isinstance(each, Simulation)] == []
