"""Applications in virtual time: `kraftsim.simulate`, and FILE.py::FUNCTION on the command line."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import kraftsim
from kraftsim.cli.main import kraftsim as command
from kraftsim.clients.events import ApplicationEnded, ApplicationStarted
from kraftsim.lab.application.simulate import SimulationFailed, reference_of, request_of
from kraftsim.lab.explore import blocking, isolated
from kraftsim.lab.explore.isolated import RunnerFailed, close_idle_runners
from kraftsim.world.simulated import Simulation
from tests.simulate import applications

FILE = Path(applications.__file__)


def facts(result: kraftsim.SimulationResult, name: str) -> list[str]:
    """Return the values of the facts of a name."""
    return [fact.value for fact in result.facts(name)]


def test_an_application_talks_to_the_cluster_and_returns() -> None:
    result = kraftsim.simulate(applications.asks, seed=3)
    assert result.is_ok, result.lines()
    assert int(facts(result, "answered")[0]) > 100
    assert result.console == "printed by app-1\n"
    started, ended = result.events(ApplicationStarted), result.events(ApplicationEnded)
    assert [event.function for _, event in started] == ["asks"]
    assert [event.reason for _, event in ended] == ["returned"]


def test_a_seed_gives_the_same_bytes_to_every_caller(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Hash seeds, the environment, earlier runs and the caller make no difference."""
    digests = []
    for hash_seed in ("1", "77"):
        close_idle_runners()
        monkeypatch.setenv("PYTHONHASHSEED", hash_seed)
        monkeypatch.setenv("SOMETHING", hash_seed * 1000)
        if hash_seed == "77":
            kraftsim.simulate(applications.crashes_twice, seed=1)
        digests.append(kraftsim.simulate(applications.asks, seed=5).result.events_sha256)
    out = tmp_path / "run"
    arguments = ["scenario", f"{FILE}::asks", "--seed", "5", "--out", str(out)]
    assert CliRunner().invoke(command, arguments, standalone_mode=False).return_value == 0
    digests.append(json.loads((out / "replay.json").read_text())["events_sha256"])
    assert digests[0] is not None and len(set(digests)) == 1
    checked = CliRunner().invoke(command, ["replay", str(out), "--check"], standalone_mode=False)
    assert checked.return_value == 0, checked.output


def test_seeds_differ() -> None:
    campaign = kraftsim.simulate_seeds(applications.asks, seeds=3, jobs=1)
    assert campaign.failed is None
    assert len({result.events_sha256 for result in campaign.results}) == 3


def test_a_crashed_application_starts_again_on_its_disk() -> None:
    result = kraftsim.simulate(applications.crashes_twice)
    assert result.is_ok, result.lines()
    assert [(fact.key, fact.value) for fact in result.facts("started")] == [
        ("1", "1"),
        ("2", "2"),
        ("3", "3"),
    ]
    reasons = [event.reason for _, event in result.events(ApplicationEnded)]
    assert reasons == ["RuntimeError: start 1", "RuntimeError: start 2", "returned"]


def test_an_application_that_always_crashes_fails_the_run() -> None:
    result = kraftsim.simulate(applications.always_crashes)
    assert result.failure is not None and "LookupError: no such setting" in result.failure
    assert "Traceback" in result.console


def test_a_failed_assertion_of_an_application_is_a_violation() -> None:
    result = kraftsim.simulate(applications.asserts)
    assert result.result.invariants_violated == ("application-assertions",)
    with pytest.raises(SimulationFailed, match="it is the first one") as failed:
        result.raise_if_failed()
    assert "assert host.number == 2" in str(failed.value)
    assert f"kraftsim replay {result.directory}" in str(failed.value)


def test_an_application_that_runs_on_is_cancelled_at_the_end() -> None:
    result = kraftsim.simulate(applications.runs_on)
    assert result.is_ok, result.lines()
    assert len(result.facts("ended")) == 1
    assert [event.reason for _, event in result.events(ApplicationEnded)] == ["cancelled"]


def test_topics_instances_and_the_cluster_can_be_given() -> None:
    result = kraftsim.simulate(
        applications.has_a_check,
        topics={"orders": 3},
        instances=2,
        cluster={"brokers": 2, "release": "3.9", "settings": {"num.io.threads": "4"}},
    )
    assert result.is_ok, result.lines()
    assert facts(result, "checked") == ["2"]
    record = json.loads((result.directory / "run.json").read_text())
    assert record["releases"] == {"controller-101": "3.9", "broker-1": "3.9", "broker-2": "3.9"}
    assert record["settings"]["num.io.threads"] == "4"


def test_a_simulation_test_has_verbs_for_faults_and_records() -> None:
    result = kraftsim.simulate(applications.faults_by_hand)
    assert result.is_ok, (result.lines(), result.console)
    assert result.result.verdicts["each-input-processed-once"] == "ok"


def test_drawn_faults_hit_the_hosts_of_an_application() -> None:
    """Over some seeds, processes of the application end and begin again."""
    campaign = kraftsim.simulate_seeds(applications.under_drawn_faults, seeds=2, jobs=1)
    assert campaign.failed is None, campaign.failed and campaign.failed.lines()
    schedules = [
        request_of(applications.under_drawn_faults, seed=seed).schedule() for seed in range(1, 9)
    ]
    assert all(schedules)
    assert any("app-" in fault.target for faults in schedules for fault in faults)


def test_a_failing_run_is_shrunk() -> None:
    campaign = kraftsim.simulate_seeds(applications.loses_to_a_pause, seeds=3, jobs=1)
    assert campaign.failed is not None
    text = campaign.failed.shrink(2)
    assert "too slow" in text and "1 broker" in text
    assert (campaign.failed.directory / "small" / "replay.json").exists()


def test_code_that_ends_its_process_is_an_error_with_what_it_printed() -> None:
    with pytest.raises(RunnerFailed, match=r"exit code -11\)\nlast words\nFatal"):
        kraftsim.simulate(applications.dies)
    refused = kraftsim.simulate(applications.exits).violations
    assert "the end of the whole process (_exit) is not simulated" in refused[0]
    assert kraftsim.simulate(applications.runs_on).is_ok


def test_code_that_blocks_the_event_loop_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "BLOCKED_SECONDS", 0.2)

    async def blocks() -> None:
        while True:
            pass

    former = signal.getsignal(signal.SIGALRM)
    try:
        isolated.watch_for_blocking()
        with Simulation(1) as simulation, pytest.raises(blocking.Blocked, match="blocks the event"):
            simulation.run_until(blocks())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


REFUSED: list[tuple[str, str]] = [
    ("missing.py::app", "missing.py does not exist"),
    ("{file}::nothing", "has no function nothing"),
    ("{file}::no_coroutine", "must be a coroutine function"),
    ("{file}::two_parameters", "must have one parameter"),
    ("{file}::unknown_option", "unknown_option: Object contains unknown field `broker`"),
    ("{broken}::app", "line 1"),
]


@pytest.mark.parametrize(("reference", "message"), REFUSED)
def test_a_reference_that_cannot_be_run_is_refused_in_one_line(
    reference: str, message: str, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("async def app(host:\n")
    named = reference.format(file=FILE, broken=broken)
    done = CliRunner().invoke(command, ["scenario", named, "--out", str(tmp_path / "run")])
    assert done.exit_code == 3, done.output
    assert message in done.output and len(done.output.splitlines()) == 1, done.output


def _closure() -> Callable[..., object]:
    async def app(host: kraftsim.AppHost) -> None:
        await asyncio.sleep(0)

    return app


def test_a_function_that_no_other_process_can_import_is_refused() -> None:
    with pytest.raises(ValueError, match="must be a function at the top level"):
        reference_of(_closure())
    with pytest.raises(ValueError, match="cluster has no option broker"):
        request_of(applications.asks, seed=1, cluster={"broker": 1})  # type: ignore[typeddict-unknown-key]  # refused


OWN = '''
"""An application with a rule of its own: no order is charged twice."""

from kraftsim.clients.events import FactStated
from kraftsim.extend import Findings, Invariant

import kraftsim


class Check:
    def __init__(self):
        self.findings = Findings("charged-once-each")
        self.first = {}

    def examine(self, envelope, event):
        if event.name != "charged":
            return None
        self.findings.examined += 1
        first = self.first.setdefault(event.key, envelope.event_id)
        if first == envelope.event_id:
            return None
        return self.findings.violation(event.key, f"{event.key} twice", first, envelope.event_id)

    def finish(self):
        return self.findings.verdict()


INVARIANT = Invariant(
    name="charged-once-each",
    rule="No order is charged twice.",
    source="the application",
    watches=(FactStated,),
    check=Check,
    examined="SELECT run, count(*) FROM fact_stated WHERE name = 'charged' GROUP BY run",
    violations="""
        SELECT run, key, concat(key, ' twice') AS message, min(position) AS first_witness,
            max(position) AS second_witness
        FROM fact_stated WHERE name = 'charged' GROUP BY run, key HAVING count(*) > 1
    """,
)


@kraftsim.application(brokers=1, faults=False, fault_seconds=1.0)
async def charges(host):
    for order in ("one", "two", "one"):
        host.fact("charged", key=order, value=100)
'''


@pytest.mark.interop
def test_an_own_invariant_judges_own_facts_and_all_commands_read_the_run(tmp_path: Path) -> None:
    """In another process: an invariant that this one loads stays in its catalogue."""
    (tmp_path / "charging.py").write_text(OWN)
    python = [sys.executable, "-m", "kraftsim"]

    def run(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [*python, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    code, output = run("scenario", "charging.py::charges", "--out", "one")
    assert code == 1 and "violated: charged-once-each: one twice" in output, output
    code, output = run("shrink", "one", "--out", "small", "--budget", "5")
    assert code == 0 and "charged-once-each" in output, output
    assert "the same, byte for byte" in run("replay", "one", "--check")[1]
    assert "FactStated" in run("trace", "one", "--node", "app-1")[1]
    assert "first event" not in run("diff", "one", "one")[1]
