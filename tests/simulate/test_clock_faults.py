"""The effects of each clock fault: who observes it, who does not, and that the clock is correct
afterwards, without a jump where there was none.
"""

import asyncio
import itertools
from collections.abc import Iterator, Mapping

import pytest

from kraftsim.lab.faults.arm import arm
from kraftsim.lab.faults.fault import FAULTS, AtTime, Fault, Value
from kraftsim.lab.faults.injection import Injection
from kraftsim.world.simulated import Simulation
from tests.simulate.fault_cluster import fault_cluster

SECOND = 1000
ROWS = [
    ("clock-offset", {"by_ms": -5000}),
    ("clock-offset", {"by_ms": 5000, "duration_ms": 2000}),
    ("clock-drift", {"ppm": -500_000}),
    ("clock-drift", {"ppm": 1_000_000, "duration_ms": 3000}),
    ("clock-jump-forward", {}),
    ("clock-jump-back", {}),
    ("clock-frozen", {}),
]


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with Simulation(5) as simulation:
        simulation.add_host("a"), simulation.add_host("b")
        yield simulation


def inject(sim: Simulation, kind: str, **params: Value) -> Injection:
    injection = arm(
        Fault(
            kind=kind,
            target="a",
            trigger=AtTime(at_ms=sim.now_ns // 1_000_000),
            params={"duration_ms": 0, **params},
        ),
        sim,
    )
    sim.run_for(0)
    return injection


def times(sim: Simulation, seconds: float, step: float = 0.1) -> list[tuple[int, int, int]]:
    """Return (true, wall, monotonic) in milliseconds since the start, at every step, as a process
    on host a reads them.
    """
    clock, start = sim.world_of("a").clock, sim.now_ns // 1_000_000
    wall, monotonic, found = clock.wall_ms(), clock.monotonic_ms(), []
    for _ in range(round(seconds / step)):
        sim.run_for(step)
        found.append(
            (
                sim.now_ns // 1_000_000 - start,
                clock.wall_ms() - wall,
                clock.monotonic_ms() - monotonic,
            )
        )
    return found


def error_ms(sim: Simulation) -> int:
    return sim.host("a").clock.error_ns // 1_000_000


@pytest.mark.parametrize("target", ["leader", "broker-1"])
@pytest.mark.parametrize(("kind", "params"), ROWS)
def test_node_with_a_wrong_clock_keeps_every_guarantee(
    kind: str, params: Mapping[str, Value], target: str
) -> None:
    """Timeouts use the monotonic clock; a wrong wall clock only shows in timestamps."""
    with fault_cluster() as cluster:
        target = cluster.leader if target == "leader" else target
        assert cluster.inject(kind, target, params).is_effective
        assert cluster.host(target).process.incarnation == 1
        cluster.simulation.run_for(20)
        assert abs(cluster.host(target).clock.error_ns) < 2, (
            "back to normal up to one nanosecond of rounding"
        )


def test_every_kind_of_the_family_has_a_row() -> None:
    assert {kind.name for kind in FAULTS.all() if kind.family.value == "clock"} == {
        kind for kind, _ in ROWS
    }


@pytest.mark.parametrize("by_ms", [-3000, 3000])
def test_offset_starts_and_ends_without_a_jump(sim: Simulation, by_ms: int) -> None:
    injection = inject(sim, "clock-offset", by_ms=by_ms)
    coming = times(sim, 8)
    assert error_ms(sim) == by_ms and injection.is_effective
    injection.end()
    going = times(sim, 8)
    assert error_ms(sim) == 0
    for steps in (coming, going):
        walls = [0, *(wall for _, wall, _ in steps)]
        assert all(49 <= later - earlier <= 151 for earlier, later in itertools.pairwise(walls)), (
            "from half as fast to half as fast again"
        )
        assert all(abs(monotonic - true) <= 1 for true, _, monotonic in steps)


@pytest.mark.parametrize(
    ("kind", "by_ms"), [("clock-jump-forward", 3_600_000), ("clock-jump-back", -10_000)]
)
def test_jump_affects_only_the_wall_clock_and_is_undone(
    sim: Simulation, kind: str, by_ms: int
) -> None:
    clock = sim.world_of("a").clock
    before = clock.wall_ms()
    injection = inject(sim, kind, by_ms=abs(by_ms))
    assert clock.wall_ms() - before == by_ms and injection.is_effective
    assert sim.world_of("b").clock.wall_ms() == before
    assert times(sim, 1)[-1] == (1000, 1000, 1000)
    injection.end()
    assert clock.wall_ms() - before == 1000


def test_frozen_clock_does_not_advance_until_healed(sim: Simulation) -> None:
    clock = sim.world_of("a").clock
    injection = inject(sim, "clock-frozen")
    first = clock.wall_ms()
    assert not injection.is_effective, "no wrong time was read yet"
    assert {wall for _, wall, _ in times(sim, 2)} == {0} and injection.is_effective
    injection.end()
    assert clock.wall_ms() - first == 2000


def test_drift_affects_both_clocks_and_their_timers(sim: Simulation) -> None:
    """With a clock twice as fast a second takes half of one; afterwards the monotonic clock keeps
    its lead and the wall clock loses it.
    """
    injection = inject(sim, "clock-drift", ppm=1_000_000)

    async def wait() -> int:
        before = sim.now_ns
        await asyncio.sleep(1)
        return sim.now_ns - before

    assert sim.run_until(sim.spawn("a", wait())) == 500_000_000
    assert times(sim, 2)[-1] == (2000, 4000, 4000) and injection.is_effective
    injection.end()
    assert error_ms(sim) == 2500
    back = times(sim, 10)
    assert error_ms(sim) == 0 and [monotonic - true for true, _, monotonic in back] == [0] * 100
    assert all(later[1] >= earlier[1] for earlier, later in itertools.pairwise(back))


def test_faults_of_one_clock_add_up_and_end_separately(sim: Simulation) -> None:
    injections = [
        inject(sim, "clock-jump-forward", by_ms=5000),
        inject(sim, "clock-jump-back", by_ms=1000),
    ]
    injections += [inject(sim, "clock-drift", ppm=ppm) for ppm in (100_000, -100_000)]
    assert error_ms(sim) == 4000
    sim.run_for(3)
    assert error_ms(sim) == 4000
    injections[0].end()
    assert error_ms(sim) == -1000
    injections[3].end()
    sim.run_for(1)
    assert error_ms(sim) == -900
    for injection in injections:
        injection.end()
    sim.run_for(5)
    assert error_ms(sim) == 0


def test_clock_fault_without_a_reader_has_no_effect(sim: Simulation) -> None:
    injection = inject(sim, "clock-jump-forward")
    sim.run_for(1)
    sim.world_of("b").clock.wall_ms()
    assert injection.has_fired and not injection.is_effective
