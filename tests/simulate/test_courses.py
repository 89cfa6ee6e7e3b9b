"""A course of steps under faults: when they begin and end, what a wait may take, and what faults
leave to the operator.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from kraftsim.cluster.scenario import LivenessLost, Mode, ScenarioEnvironment, scenario
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_scenario
from kraftsim.lab.explore.virtual import set_up
from kraftsim.lab.faults.fault import AtTime, Fault
from kraftsim.lab.workloads.course import Course

SECONDS = 4.0
DOWN = Fault(kind="kill", target="controller-101", trigger=AtTime(at_ms=1))
"""It stays down until everything is healed."""


def in_virtual_time(
    act: Callable[[ScenarioEnvironment, Course], Awaitable[None]],
    *faults: Fault,
    steps_max: int = 1,
) -> str | None:
    """Run the steps of a course in a small cluster; return what aborted the run, or None."""

    async def run(stage: ScenarioEnvironment) -> None:
        course = Course(stage=stage, steps_max=steps_max, seconds=SECONDS)
        await course.run(act(stage, course))

    base = replace(
        scenario("duplicate_broker_id"), run=run, fault_space=None, must_exercise=(), brokers=1
    )
    request = RunRequest(scenario=base, mode=Mode.SIM, seed=1, faults=faults, controllers=3)
    with request.simulation() as simulation:
        return set_up(request, simulation).run(limit_seconds=120.0)


def test_wait_lasts_as_long_as_the_faults_and_then_has_its_limit() -> None:
    """The limit is shorter than the faults; it counts from the healing."""
    waited = []

    async def act(stage: ScenarioEnvironment, course: Course) -> None:
        course.step()
        began = stage.now_seconds()
        await course.within("a thing", stage.sleep(SECONDS + 1.0), 1.5)
        waited.append(stage.now_seconds() - began)

    assert in_virtual_time(act) is None and waited == [pytest.approx(SECONDS + 1.0)]


@pytest.mark.parametrize("is_faulty", [True, False])
def test_wait_beyond_its_limit_ends_the_run(is_faulty: bool) -> None:
    """After the healing, or without faults."""
    lost_at = []

    async def act(stage: ScenarioEnvironment, course: Course) -> None:
        began = stage.now_seconds()
        if is_faulty:
            course.step()
        try:
            await course.within("a thing", stage.sleep(60.0), 1.5)
        except LivenessLost:
            lost_at.append(stage.now_seconds() - began)
            raise

    trouble = in_virtual_time(act)
    assert trouble is not None and "a thing: not reached within 1.5 s" in trouble
    assert lost_at == [pytest.approx(1.5 + SECONDS * is_faulty)]


@pytest.mark.parametrize(
    ("steps", "is_down", "lasts"), [(3, True, True), (0, False, False)], ids=["drawn", "too-short"]
)
def test_faults_begin_with_the_drawn_step_or_at_the_end(
    steps: int, is_down: bool, lasts: bool
) -> None:
    """Faults begin with one of the first steps; a course without that step meets them in the
    end.
    """
    seen = []

    async def act(stage: ScenarioEnvironment, course: Course) -> None:
        await stage.wait_for_leader()
        for _ in range(steps):
            assert not stage.is_down(DOWN.target)
            course.step()
            await stage.sleep(0.5)
            if stage.is_down(DOWN.target):
                break
        seen.append((stage.is_down(DOWN.target), course.lasts))
        await course.finish()
        seen.append((stage.is_down(DOWN.target), course.lasts))

    assert in_virtual_time(act, DOWN, steps_max=3) is None
    assert seen == [(is_down, lasts), (False, False)]


def test_node_that_its_operator_stopped_for_good_stays_down() -> None:
    """Neither a fault that restarts it later nor the healing starts it."""
    found = []

    async def act(stage: ScenarioEnvironment, course: Course) -> None:
        await stage.wait_for_leader()
        course.step()
        await stage.sleep(0.1)
        await stage.kill("controller-101")
        await stage.kill("controller-102")
        await course.finish()
        found.append([stage.is_down(name) for name in stage.spec.controller_names])
        await stage.restart("controller-101")
        found.append([stage.is_down(name) for name in stage.spec.controller_names])

    restart = Fault(
        kind="restart",
        target="controller-102",
        trigger=AtTime(at_ms=1),
        params={"after_ms": 500, "power_loss": False},
    )
    assert in_virtual_time(act, DOWN, restart) is None
    assert found == [[True, True, False], [False, True, False]]


def test_release_that_the_operator_chose_outlasts_another_one() -> None:
    """Two nodes run another release while the operator upgrades them; when that ends they run the
    release of the upgrade, so that its levels can be finalized.
    """
    faults = tuple(
        Fault(
            kind="other-release",
            target=name,
            trigger=AtTime(at_ms=at_ms),
            params={"release": release, "duration_ms": 7500},
        )
        for name, at_ms, release in (
            ("broker-1", 1, "3.9"),
            ("broker-3", 1, "3.9"),
            ("broker-3", 3000, "4.0"),
        )
    )
    result = run_scenario(
        "rolling_upgrade",
        seed=3,
        settings={"kraftsim.upgrade.path": "4.1"},
        release="3.6",
        work={"copiers": 1, "writers": 1},
        faults=faults,
    )
    assert (result.outcome, result.trouble) == ("ok", None), "\n".join(result.lines())
    assert result.faults["other-release"][2] >= 2
