"""The checker of client histories finds bugs of brokers from what clients saw alone: no other
invariant, and so no event of a node, is checked in these runs.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kraftsim.cluster.scenario import Mode, ScenarioEnvironment, scenario
from kraftsim.invariants.invariant import INVARIANTS, Oracle
from kraftsim.lab.explore import virtual
from kraftsim.lab.explore.record import RunResult
from kraftsim.lab.explore.request import RunEnvironment, RunRequest
from kraftsim.lab.explore.run import run_request, run_scenario
from kraftsim.lab.workloads.bank import BankApp
from kraftsim.lab.workloads.phases import under_faults
from tests.simulate.findings import SEEDS

OF_HISTORIES = ("client-histories-explained", "bank-total-constant")
LISTS, BANK = "list_append_under_faults", "bank_transfers_under_faults"
FINDINGS = [
    ("KAFKA-5376", LISTS, 1),
    ("KAFKA-9807", LISTS, 26),
]


def histories_alone(must_exercise: Sequence[str]) -> Oracle:
    """Return the checks of client histories."""
    invariants = [each for each in INVARIANTS.all() if each.name in OF_HISTORIES]
    return Oracle([name for name in must_exercise if name in OF_HISTORIES], invariants)


def run_alone(monkeypatch: pytest.MonkeyPatch, scenario: str, seed: int, *bugs: str) -> RunResult:
    """Run a scenario with no other checks."""
    monkeypatch.setattr(virtual, "Oracle", histories_alone)
    return run_scenario(scenario, seed=seed, bugs=bugs)


@pytest.mark.parametrize("bug, scenario, seed", FINDINGS)
def test_bug_is_found_from_what_clients_saw(
    monkeypatch: pytest.MonkeyPatch, bug: str, scenario: str, seed: int
) -> None:
    found = next(
        run
        for later in range(SEEDS)
        if (run := run_alone(monkeypatch, scenario, seed + later, bug)).invariants_violated
    )
    assert set(found.invariants_violated) <= set(OF_HISTORIES)


@pytest.mark.parametrize("scenario, seed", sorted({finding[1:] for finding in FINDINGS}))
def test_without_the_bug_the_history_is_explained(
    monkeypatch: pytest.MonkeyPatch, scenario: str, seed: int
) -> None:
    clean = run_alone(monkeypatch, scenario, seed)
    assert (clean.outcome, clean.violations, clean.trouble) == ("ok", (), None)


@pytest.mark.parametrize("scenario", [LISTS, BANK])
def test_every_check_exercises_the_workload(scenario: str) -> None:
    result = run_scenario(scenario, seed=2)
    assert (result.outcome, result.violations, result.trouble) == ("ok", (), None)
    assert result.verdicts["client-histories-explained"] == "ok"


def bank_run(seed: int, old_members: tuple[int, ...]) -> RunResult:
    """Run the bank without faults but the pauses of its members; the old ones among them commit
    without their generation.
    """

    async def run(stage: ScenarioEnvironment) -> None:
        bank = BankApp(old_members=old_members, transaction_timeout_ms=20_000)
        await bank.open(stage)
        over_at = stage.now_seconds() + 8
        await under_faults(
            stage, bank.run(stage, until=lambda: stage.now_seconds() >= over_at), seconds=8
        )
        await bank.audit(stage)

    request = RunRequest(
        scenario=replace(scenario(BANK), run=run),
        mode=Mode.SIM,
        seed=seed,
        workload={"pauses": 40},
        faults=(),
        surroundings=RunEnvironment(),
    )
    return run_request(request)


def test_bank_loses_money_to_members_that_commit_without_their_generation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A producer per thread whose commits name no member, as before KIP-447: one that was paused
    until its partitions were reassigned is not fenced, and transfers the same money again.
    """
    monkeypatch.setattr(virtual, "Oracle", histories_alone)
    seed, lossy = next(
        (seed, run)
        for seed in range(1, 9)
        if (run := bank_run(seed, old_members=(1, 2, 3))).outcome == "violated"
    )
    assert any("lost-update" in line for line in lossy.violations)
    cured = bank_run(seed, old_members=())
    assert (cured.outcome, cured.violations, cured.trouble) == ("ok", (), None), cured.lines()
