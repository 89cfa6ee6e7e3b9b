"""The virtual event loop: time, order, reproducibility, and the code of killed processes."""

import asyncio
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from kraftsim.events.event import Event
from kraftsim.server.events import NodeReady, NodeStopped
from kraftsim.world.simulated import (
    SimulatedWorld,
    Simulation,
    SimulationDeadlock,
    SimulationLivelock,
    SimulationStopped,
    SimulationTimeLimit,
)
from kraftsim.world.simulated.host import current_process

PROGRAM = Path(__file__).parent / "loop_program.py"


def test_simulated_day_takes_no_time() -> None:
    with Simulation(1) as sim:

        async def nap() -> float:
            await asyncio.sleep(86400)
            return asyncio.get_running_loop().time()

        assert sim.run_until(nap(), limit_s=90000) == 86400
        assert sim.now_ns == 86400 * 10**9 and sim.loop.steps < 10


def test_same_seed_gives_the_same_bytes_twice_in_one_process() -> None:
    run = runpy.run_path(str(PROGRAM))["run"]
    contents = [run(seed).event_bytes() for seed in (1, 1, 2)]
    assert contents[0] == contents[1]
    assert contents[0] != contents[2]
    assert contents[0].count(b"FaultTookEffect") >= 4, "the program exercises faults"


def test_same_seed_gives_the_same_bytes_under_any_hash_seed() -> None:
    """kraftsim depends neither on string hashes nor on addresses, not even where it iterates over a
    set of tasks.
    """
    digests = []
    for hash_seed in ("0", "1", "random"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        digests.append(
            subprocess.run(
                [sys.executable, PROGRAM, "3"],
                env=environment,
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
    assert len(set(digests)) == 1 and len(digests[0]) == 65


def test_seed_chooses_the_next_process_but_not_the_order_within_one() -> None:
    orders = set()
    for seed in range(8):
        with Simulation(seed) as sim:
            order: list[str] = []
            for name in ("a", "b"):
                sim.add_host(name)
                for i in range(3):
                    sim.loop.schedule(sim.host(name).process, 1000, order.append, f"{name}{i}")
            sim.run_for(1)
            assert [step for step in order if step[0] == "a"] == ["a0", "a1", "a2"]
            orders.add(tuple(order))
    assert len(orders) == 2


def test_tiny_delays_still_advance_time() -> None:
    """A delay that rounds to zero must not stop virtual time for ever."""
    with Simulation(1) as sim:

        async def rearm() -> None:
            for _ in range(100):
                await asyncio.sleep(1e-12)

        sim.run_until(rearm())
        assert sim.now_ns >= 100_000


def test_livelock_deadlock_and_timeout_are_distinguished() -> None:
    with Simulation(1) as sim:

        async def spin() -> None:
            while True:
                await asyncio.sleep(0)

        with pytest.raises(SimulationDeadlock):
            sim.run_until(sim.loop.create_future())
        with pytest.raises(SimulationTimeLimit):
            sim.run_until(asyncio.sleep(100), limit_s=10)
        assert sim.now_ns == 10 * 10**9
        with pytest.raises(SimulationLivelock):
            sim.run_until(spin())


def test_callbacks_have_a_limit_though_time_passes() -> None:
    """A loop that waits a little each time is no livelock at one moment, and ends no sooner."""
    with Simulation(1) as sim:

        async def wait_a_little() -> None:
            while True:
                await asyncio.sleep(0.0001)

        sim.loop.steps_max = 50_000
        with pytest.raises(SimulationLivelock, match="more than 50000 callbacks"):
            sim.run_until(wait_a_little(), limit_s=3600)
        assert sim.now_ns < 60 * 10**9


def test_killed_process_does_nothing_more_not_even_finally() -> None:
    with Simulation(1) as sim:
        host = sim.add_host("a")
        world = sim.world_of(host)
        trace: list[int | str] = []

        async def work() -> None:
            try:
                while True:
                    await asyncio.sleep(1)
                    trace.append(sim.now_ns)
            finally:
                trace.append("finally")

        task = sim.spawn(host, work())
        sim.run_for(2.5)
        sim.kill(host)
        world.emit(NodeReady())
        sim.run_for(10)
        assert len(trace) == 2 and not task.done()
        assert b"NodeReady" not in sim.event_bytes()


def test_code_that_kills_its_own_host_continues_without_effect() -> None:
    """A fault fires in the middle of a node's callback; the rest of that callback must not take
    effect.
    """
    with Simulation(1) as sim:
        host = sim.add_host("a")
        world = sim.world_of(host)
        after: list[object] = []

        async def work() -> None:
            file = world.disk.open("f")
            file.append([b"before"])
            sim.kill(host)
            file.append([b"after"])
            world.emit(NodeReady())
            asyncio.get_running_loop().call_soon(after.append, 1)
            asyncio.get_running_loop().call_later(1, after.append, 2)
            after_kill = asyncio.ensure_future(asyncio.sleep(1))
            await asyncio.sleep(1)
            after.append(after_kill)

        sim.spawn(host, work())
        sim.run_for(5)
        sim.restart(host)
        sim.run_for(5)
        assert after == []
        assert sim.world_of(host).disk.read("f") == b"before"
        assert b"NodeReady" not in sim.event_bytes()


def test_restart_is_the_next_incarnation_with_the_given_program() -> None:
    with Simulation(1) as sim:
        host = sim.add_host("a")
        seen = []

        async def main(world: SimulatedWorld) -> None:
            seen.append((world.incarnation, world.random("x").random()))

        sim.on_restart = lambda host: main(sim.world_of(host))
        sim.run_until(sim.spawn(host, main(sim.world_of(host))))
        sim.kill(host)
        sim.restart(host)
        sim.run_for(1)
        assert [incarnation for incarnation, _ in seen] == [1, 2]
        assert seen[0][1] != seen[1][1]


def test_paused_process_catches_up_later() -> None:
    with Simulation(1) as sim:
        host = sim.add_host("a")
        ticks = []

        async def tick() -> None:
            while True:
                await asyncio.sleep(1)
                ticks.append(sim.now_ns // 10**9)

        sim.spawn(host, tick())
        sim.run_for(2.5)
        sim.pause(host)
        sim.run_for(5)
        assert ticks == [1, 2]
        assert sim.resume(host) == 1
        sim.run_for(1.5)
        assert ticks == [1, 2, 7, 8]


def test_clocks_of_hosts_are_faulty_independently() -> None:
    with Simulation(1) as sim:
        right, jumped, fast = (sim.add_host(name) for name in ("right", "jumped", "fast"))
        jumped.clock.jump(-5_000_000_000)
        fast.clock.drift(1000)

        async def nap() -> float:
            await asyncio.sleep(1001)
            assert (
                asyncio.get_running_loop().time()
                == current_process.get().host.clock.monotonic_ns() / 1e9
            )
            return sim.now_ns

        assert sim.run_until(sim.spawn(right, nap()), 2000) == 1001 * 10**9
        assert right.clock.wall_ms() - jumped.clock.wall_ms() == 5000
        assert right.clock.monotonic_ns() == jumped.clock.monotonic_ns() == sim.now_ns
        assert fast.clock.monotonic_ms() - right.clock.monotonic_ms() == 1001
        ahead_ns = fast.clock.monotonic_ns() - sim.now_ns
        fast.clock.drift(0)
        assert fast.clock.monotonic_ns() - sim.now_ns == ahead_ns > 0, "a healed clock stays ahead"
        started = sim.now_ns
        assert sim.run_until(sim.spawn(fast, nap()), 2000) - started == 1001 * 10**9
        fast.clock.drift(1000)
        started = sim.now_ns
        assert sim.run_until(sim.spawn(fast, nap()), 2000) - started == pytest.approx(
            1000 * 10**9, rel=1e-9
        )


def test_oracle_stops_the_run_without_raising_in_a_task() -> None:
    with Simulation(1) as sim:
        host = sim.add_host("a")
        world, swallowed = sim.world_of(host), []

        async def work() -> None:
            while True:
                try:
                    await asyncio.sleep(1)
                    world.emit(NodeStopped(reason="x"))
                except BaseException as error:
                    swallowed.append(error)
                    raise

        def oracle(node: str, incarnation: int, n: int, t_ns: int, event: Event) -> None:
            if isinstance(event, NodeStopped) and n == 2:
                sim.violation("toy", "three is too many", (f"{node}.{incarnation}.{n}",))

        sim.observe(oracle)
        task = sim.spawn(host, work())
        with pytest.raises(SimulationStopped, match="three is too many"):
            sim.run_until(task)
        assert sim.now_ns == 3 * 10**9 and swallowed == []
        assert sim.violations[0].witnesses == ("a.1.2",)


def test_failed_assertion_of_a_node_ends_the_run() -> None:
    with Simulation(1) as sim:
        host = sim.add_host("a")

        def callback() -> None:
            assert False, "what was believed"  # noqa: B011  (the failure of a node's own assertion)

        sim.loop.schedule(host.process, 1000, callback)
        with pytest.raises(SimulationStopped, match="a: AssertionError: what was believed"):
            sim.run_for(1)
        assert sim.troubles[0].host == "a"


def test_closed_simulation_closes_pending_work_silently(
    recwarn: pytest.WarningsRecorder, capsys: pytest.CaptureFixture[str]
) -> None:
    with Simulation(1) as sim:
        host = sim.add_host("a")

        async def stubborn() -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                await asyncio.sleep(1)

        sim.spawn(host, stubborn())
        sim.run_for(1)
        sim.kill(host)
    assert not recwarn.list
    assert capsys.readouterr().err == ""
