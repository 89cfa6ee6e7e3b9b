"""Threads of third-party code run in lockstep with the virtual loop: see
kraftsim.world.simulated.threads.
"""

import asyncio
import concurrent.futures
import importlib.metadata
import threading
import time

import pytest

from kraftsim.world.simulated import Simulation, SimulationEscape, threads


class LoopThread(threading.Thread):
    """A thread with an event loop of its own, as mode.ServiceThread is."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log
        self.loop = asyncio.get_event_loop_policy().new_event_loop()

    def run(self) -> None:
        """Run one coroutine, and close the loop."""
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self.serve())
        finally:
            self.log.append(f"unwound at {time.monotonic():g}")
            self.loop.stop()
            self.loop.close()

    async def serve(self) -> None:
        """Take three seconds."""
        for _ in range(3):
            self.log.append(f"thread at {time.monotonic():g}")
            await asyncio.sleep(1)


async def main_with_thread(log: list[str]) -> None:
    """Start a thread, and do something else beside it."""
    thread = LoopThread(log)
    thread.start()
    for _ in range(5):
        log.append(f"main at {time.monotonic():g}")
        await asyncio.sleep(0.9)
    thread.join()
    assert not thread.is_alive()
    assert asyncio.get_event_loop_policy().get_event_loop() is asyncio.get_running_loop()


def run_on_tolerant_host(seed: int = 1) -> list[str]:
    """Return the log of a program with a thread."""
    log: list[str] = []
    with Simulation(seed) as simulation:
        host = simulation.add_host("app", tolerant=True)
        simulation.run_until(simulation.spawn(host, main_with_thread(log)))
    return log


def test_thread_with_an_event_loop_runs_in_virtual_time_beside_the_main_one() -> None:
    """Its sleeps take virtual time, and it ends before the program that joins it."""
    before = time.monotonic()
    log = run_on_tolerant_host()
    assert log == [
        "main at 0",
        "thread at 0",
        "main at 0.9",
        "thread at 1",
        "main at 1.8",
        "thread at 2",
        "main at 2.7",
        "unwound at 3",
        "main at 3.6",
    ]
    assert time.monotonic() - before < 3, "virtual time took real time"


def test_program_with_threads_is_the_same_in_every_run() -> None:
    """The seed, not the operating system, chooses what runs next."""
    assert {tuple(run_on_tolerant_host(7)) for _ in range(5)} == {tuple(run_on_tolerant_host(7))}


def test_thread_of_a_killed_process_is_unwound() -> None:
    """Its `finally` blocks run without effect, and no operating-system thread is left."""
    log: list[str] = []
    before = set(threading.enumerate())
    with Simulation(1) as simulation:
        host = simulation.add_host("app", tolerant=True)
        simulation.spawn(host, main_with_thread(log))
        simulation.run_for(1.5)
        assert len(set(threading.enumerate()) - before) == 1
        simulation.kill(host)
        simulation.run_for(3)
    assert log[-1] == "unwound at 1.5"
    assert not set(threading.enumerate()) - before


def test_thread_of_a_simulation_that_ends_is_unwound() -> None:
    """A sweep runs thousands of simulations in one process."""
    before = set(threading.enumerate())
    with Simulation(1) as simulation:
        host = simulation.add_host("app", tolerant=True)
        simulation.spawn(host, main_with_thread([]))
        simulation.run_for(1.5)
    assert not set(threading.enumerate()) - before


def test_wait_for_a_thread_that_runs_is_refused() -> None:
    """The loop could not run meanwhile, so the thread would never end."""

    async def program() -> None:
        thread = LoopThread([])
        thread.start()
        thread.join()

    with Simulation(1) as simulation:
        host = simulation.add_host("app", tolerant=True)
        with pytest.raises(SimulationEscape, match="a wait for a thread that runs"):
            simulation.run_until(simulation.spawn(host, program()))


def test_thread_that_blocks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock or a queue would stop virtual time."""
    monkeypatch.setattr(threads, "STUCK_SECONDS", 0.05)
    gate = threading.Lock()
    gate.acquire()

    async def program() -> None:
        threading.Thread(target=gate.acquire, name="stuck-one").start()

    with Simulation(1) as simulation:
        host = simulation.add_host("app", tolerant=True)
        with pytest.raises(SimulationEscape, match=r"a thread that blocks \(stuck-one\)"):
            simulation.run_until(simulation.spawn(host, program()))
        gate.release()


def test_thread_pool_is_refused() -> None:
    """Its workers wait for work without a loop; `run_in_executor` calls the function at once."""

    async def program() -> None:
        assert await asyncio.to_thread(lambda: 3) == 3
        concurrent.futures.ThreadPoolExecutor().submit(print)

    with Simulation(1) as simulation:
        host = simulation.add_host("app", tolerant=True)
        with pytest.raises(SimulationEscape, match="a wait in real time"):
            simulation.run_until(simulation.spawn(host, program()))


def test_program_sees_only_its_own_tasks() -> None:
    """Programs cancel all tasks when they end: those of other hosts must live on."""

    async def other() -> str:
        await asyncio.sleep(2)
        return "done"

    async def program() -> list[str]:
        tasks = asyncio.all_tasks()
        for task in tasks - {asyncio.current_task()}:
            task.cancel()
        return [task.get_name() for task in tasks]

    with Simulation(1) as simulation:
        there = simulation.spawn(simulation.add_host("other"), other())
        host = simulation.add_host("app", tolerant=True)
        names = simulation.run_until(simulation.spawn(host, program()))
        assert [name.partition("/")[0] for name in names] == ["app"]
        assert simulation.run_until(there) == "done"


def test_program_may_read_the_entry_points_of_installed_packages() -> None:
    """Libraries find their plug-ins there; the installation is the same in every run."""

    async def program() -> int:
        return len(importlib.metadata.entry_points())

    with Simulation(1) as simulation:
        host = simulation.add_host("app", tolerant=True)
        assert simulation.run_until(simulation.spawn(host, program())) > 0


def test_closing_a_simulation_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """Coroutines that await in `finally` cannot be closed: that is no fault of the program."""

    async def stubborn() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)

    async def program() -> None:
        await stubborn()

    with Simulation(1) as simulation:
        host = simulation.add_host("app", tolerant=True)
        simulation.spawn(host, program())
        simulation.run_for(1)
    assert capfd.readouterr().err == ""


def test_program_that_waits_until_the_time_is_after_its_deadline_goes_on() -> None:
    """A timer fires exactly at the deadline; in reality time passes while code runs, so programs
    (aiokafka's auto-commit) then wait for 0 s, again and again.
    """

    async def program() -> float:
        deadline = time.monotonic() + 5
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        while time.monotonic() <= deadline:
            await asyncio.wait([never], timeout=max(0, deadline - time.monotonic()))
        return time.monotonic()

    with Simulation(1) as simulation:
        host = simulation.add_host("app", tolerant=True)
        assert simulation.run_until(simulation.spawn(host, program())) == pytest.approx(5, abs=1e-4)
