"""A run whose failure only its end shows is shrunk to one that fails for the same reason.

Neither to one without a workload, whose scenario waits for what nothing does, nor to one that was
cut, nor by removing a fault that did not fire, but changed the order of what came after it.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kraftsim.clients.events import RecordAcknowledged
from kraftsim.cluster.scenario import (
    LivenessLost,
    Mode,
    Scenario,
    ScenarioEnvironment,
    ScenarioFailed,
    scenario,
)
from kraftsim.events.runs import Settled
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_request
from kraftsim.lab.explore.shrink import shrink
from kraftsim.lab.explore.trials import probe
from kraftsim.lab.faults.fault import AtTime, Fault

FAULTS_SECONDS = 1.0
RACE_SECONDS = 2.0
RACERS = 4
SEEDS = range(1, 60)


def restart(at_ms: int, target: str = "broker-1") -> Fault:
    return Fault(
        kind="restart",
        target=target,
        trigger=AtTime(at_ms=at_ms),
        params={"power_loss": False, "after_ms": 5000},
    )


def scenario_of(run: Callable[[ScenarioEnvironment], Awaitable[None]], **workload: int) -> Scenario:
    return Scenario(
        name="fails_at_the_end",
        summary="Fails at its end.",
        must_exercise=(),
        run=run,
        faults=lambda random, mode: (),
        brokers=2,
        workload=workload,
        fewest_controllers=1,
        fewest_brokers=2,
    )


async def members_settle(stage: ScenarioEnvironment) -> None:
    """Wait for members: a bug in the nodes lets a restart of broker-1 end that they settle."""
    stage.inject()
    await stage.sleep(FAULTS_SECONDS)
    are_settled = stage.workload("members") > 0 and not stage.is_down("broker-1")
    await stage.heal()
    if not are_settled:
        raise LivenessLost("the assignment of the group: not settled")


def request_of(members: int, *faults: Fault, seed: int = 1) -> RunRequest:
    return RunRequest(
        scenario=scenario_of(members_settle, members=4, records=20),
        mode=Mode.SIM,
        seed=seed,
        faults=faults,
        workload={"members": members, "records": 20},
    )


def test_loss_of_liveness_keeps_the_workload_that_shows_it() -> None:
    """Without members the assignment never settles, in an intact cluster, too."""
    request = request_of(4, restart(100, "broker-2"), restart(500))
    small = shrink(request)
    assert [fault.target for fault in small.candidate.faults] == ["broker-1"]
    assert small.candidate.workload == {"members": 1, "records": 0} and small.is_smallest
    assert small.finding == probe(request).found[0]


def test_failure_without_faults_keeps_a_workload() -> None:
    """Then the scenario fails by itself, and nothing tells which workload is too small."""

    async def never(stage: ScenarioEnvironment) -> None:
        await stage.sleep(FAULTS_SECONDS)
        raise LivenessLost("the assignment of the group: not settled")

    small = shrink(
        RunRequest(
            scenario=scenario_of(never, members=4, records=20), mode=Mode.SIM, seed=1, faults=()
        )
    )
    assert sum(small.candidate.workload.values()) == 1 and small.is_smallest


async def acknowledges_too_much(stage: ScenarioEnvironment) -> None:
    """Acknowledge a record that no log has, if broker-1 is restarted; without members something
    else ends the run, in which the record is missing, too.
    """
    stage.inject()
    await stage.create_topic("a", 1)
    await stage.sleep(FAULTS_SECONDS)
    is_cut = not stage.workload("members")
    if is_cut or stage.is_down("broker-1"):
        stage.emit(
            RecordAcknowledged(client_id="w", topic="a", partition=0, record_key="k", offset=0)
        )
    if is_cut:
        stage.emit(Settled(what="calls", after_ms=2, limit_ms=1, is_settled=False))
    await stage.heal()


def test_run_that_something_else_cut_does_not_show_what_its_end_shows() -> None:
    """Which records are lost is decided at the end: a run that was cut is not over."""
    cut = scenario_of(acknowledges_too_much, members=4)
    request = RunRequest(scenario=cut, mode=Mode.SIM, seed=1, faults=(restart(500),))
    small = shrink(request)
    assert small.finding.invariant == "acknowledged-records-in-final-log"
    assert small.candidate.workload == {"members": 1} and len(small.candidate.faults) == 1
    assert small.seen.cut_by is None and small.is_smallest


async def race(stage: ScenarioEnvironment) -> None:
    """Fail if the first of several hosts, all due at one moment after the faults, is the last."""
    stage.inject()
    began = stage.now_seconds()
    await stage.sleep(FAULTS_SECONDS)
    await stage.heal()
    arrived = []

    async def arrive(number: int) -> None:
        await asyncio.sleep(began + RACE_SECONDS - stage.now_seconds())
        arrived.append(number)

    await stage.gather(
        *(stage.client_host(f"racer-{number}").run(arrive(number)) for number in range(RACERS))
    )
    if arrived[-1] == 0:
        raise ScenarioFailed("the first came last")


def test_fault_that_did_not_fire_is_kept_where_the_failure_needs_its_turn() -> None:
    """Its timer goes off after all faults are healed: the harness gets a turn, and the seed's
    choice of who runs next is another one.
    """
    decoys = tuple(restart(int(RACE_SECONDS * 1000), f"broker-{number}") for number in (1, 2))
    racing = scenario_of(race)

    def request_with(seed: int, faults: tuple[Fault, ...]) -> RunRequest:
        return RunRequest(scenario=racing, mode=Mode.SIM, seed=seed, faults=faults)

    seed = next(
        seed
        for seed in SEEDS
        if probe(request_with(seed, decoys)).found and not probe(request_with(seed, ())).found
    )
    request = request_with(seed, decoys)
    assert not probe(request).fired
    small = shrink(request)
    assert small.is_smallest and small.candidate.faults
    done = run_request(small.candidate.request(request))
    assert done.outcome == "failed" and "the first came last" in str(done.trouble)


@pytest.mark.parametrize("copiers", [0, 1])
def test_consumer_group_settles_with_fewer_members_than_partitions_can_move_between(
    copiers: int,
) -> None:
    """With none there is nothing to settle; a single one that is silent has no successor."""
    chosen = scenario("consumer_group_under_faults")
    workload = {
        name: value if name == "work_ms" or copiers else 0
        for name, value in chosen.workload.items()
    }
    request = RunRequest(
        scenario=chosen,
        mode=Mode.SIM,
        seed=12,
        faults=(),
        workload={**workload, "copiers": copiers, "crashes": 0, "departures": 0, "pauses": 0},
    )
    assert not probe(request).found
