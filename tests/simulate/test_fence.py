"""Nothing escapes: what reaches for the real machine is refused with its call site, or routed to the simulated host."""

import asyncio
import io
import os
import random
import secrets
import socket
import subprocess
import threading
import time
import uuid
from pathlib import Path

import pytest

from kraftsim.world.simulated import Simulation, SimulationEscape, SimulationStopped

ESCAPES = {
    "thread": lambda: threading.Thread(target=print).start(),
    "socket": socket.socket,
    "socket pair": socket.socketpair,
    "create_connection": lambda: socket.create_connection(("127.0.0.1", 1)),
    "name look-up": lambda: socket.getaddrinfo("localhost", 1),
    "process": lambda: subprocess.run(["true"], check=False),
    "shell": lambda: os.system("true"),
    "fork": lambda: os.fork(),
    "second loop": lambda: asyncio.new_event_loop(),
    "open": lambda: open(__file__),  # noqa: SIM115
    "io.open": lambda: io.open(__file__),  # noqa: UP020, SIM115
    "os.open": lambda: os.open(__file__, os.O_RDONLY),
    "pathlib": lambda: Path(__file__).read_text(),
    "sleep": lambda: time.sleep(0.001),
    "clock_gettime": lambda: time.clock_gettime(time.CLOCK_REALTIME),
}


@pytest.mark.parametrize("name", ESCAPES)
def test_an_escape_is_refused_with_its_call_site(name):
    with Simulation(1) as sim:
        host = sim.add_host("a")

        async def escape():
            ESCAPES[name]()

        with pytest.raises(SimulationEscape, match=r"test_fence\.py:\d+"):
            sim.run_until(sim.spawn(host, escape()))
    result = ESCAPES[name] if name in ("fork", "shell", "process", "create_connection") else ESCAPES[name]()
    if hasattr(result, "close"):
        result.close()


def test_an_escape_that_a_node_swallows_in_a_callback_ends_the_run():
    with Simulation(1) as sim:
        host = sim.add_host("a")
        sim.loop.schedule(host.process, 1000, open, __file__)
        sim.loop.schedule(host.process, 1000, lambda: open(__file__))  # noqa: SIM115
        with pytest.raises(SimulationStopped, match="SimulationEscape"):
            sim.run_for(1)


def test_the_harness_may_open_files():
    with Simulation(1) as sim:

        async def read():
            with open(__file__) as file:  # noqa: ASYNC230
                return file.readline()

        assert sim.run_until(read()).startswith('"""Nothing escapes')


def ambient_values():
    return [
        time.time(), time.time_ns(), time.monotonic(), time.perf_counter(), random.random(), random.choice("abc"), random.Random().random(),
        os.urandom(4), uuid.uuid4(), uuid.uuid1(), secrets.token_hex(4), random.SystemRandom().random(),
    ]  # fmt: skip


def test_ambient_time_and_chance_come_from_the_host_whose_code_runs():
    def draw(seed):
        with Simulation(seed) as sim:
            values = []

            async def ask():
                await asyncio.sleep(7)
                return ambient_values()

            for name in ("a", "b"):
                sim.add_host(name)
            sim.host("b").clock.jump(5_000_000_000)
            tasks = [sim.spawn(name, ask()) for name in ("a", "b")]
            for task in tasks:
                values.append(sim.run_until(task))
            return values

    first, again, other = draw(1), draw(1), draw(2)
    assert first == again
    a, b = first
    assert a[0] == 1_700_000_007.0 and b[0] == 1_700_000_012.0 and a[2] == 7.0
    assert all(x != y for x, y in zip(a[6:], b[6:], strict=True)), "hosts do not share chance"
    assert all(x != y for x, y in zip(a[6:], other[0][6:], strict=True)), "seeds do not share chance"


def test_outside_of_a_simulation_everything_is_real_again():
    with Simulation(1) as sim:
        sim.run_for(1)
        assert abs(time.time() - os.stat("/proc/self").st_mtime) < 86400 * 365
        assert ambient_values() != ambient_values()


def test_a_function_for_a_thread_runs_at_once():
    """Unmodified clients may hand small work to an executor."""
    with Simulation(1) as sim:

        async def ask():
            return await asyncio.to_thread(threading.get_ident), threading.get_ident()

        assert len(set(sim.run_until(ask()))) == 1
