"""Nothing escapes: access to the real machine is rejected with its call site, or routed to the
simulated host.
"""

import _posixsubprocess
import _socket
import _thread
import asyncio
import concurrent.futures
import ctypes
import glob
import io
import mmap
import multiprocessing
import os
import random
import secrets
import select
import selectors
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Awaitable, Callable
from os import fork as early_fork
from os import open as early_open
from pathlib import Path
from socket import socket as early_socket
from subprocess import Popen as EarlyPopen
from typing import cast

import pytest

from kraftsim.world.simulated import Simulation, SimulationEscape, SimulationStopped

Escape = Callable[[], object]
THREADS: dict[str, Escape] = {
    "thread": lambda: threading.Thread(target=print).start(),
    "timer": lambda: threading.Timer(0, print).start(),
    "thread of C": lambda: _thread.start_new_thread(print, ()),
    "thread pool": lambda: concurrent.futures.ThreadPoolExecutor().submit(print),
    "event of threads": lambda: threading.Event().wait(0.001),
}
PROCESSES: dict[str, Escape] = {
    "process": lambda: subprocess.run(["true"], check=False),
    "shell": lambda: os.system("true"),
    "pipe from a shell": lambda: os.popen("true"),
    "fork": lambda: os.fork(),
    "fork with a terminal": lambda: os.forkpty(),
    "posix_spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
    "posix_spawnp": lambda: os.posix_spawnp("true", ["true"], {}),
    "spawnl": lambda: os.spawnl(os.P_WAIT, "/bin/true", "true"),
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "exec with an environment": lambda: os.execve("/bin/true", ["true"], {}),
    "fork_exec": lambda: vars(_posixsubprocess)["fork_exec"](),
    "multiprocessing by fork": lambda: (
        multiprocessing.get_context("fork").Process(target=print).start()
    ),
    "multiprocessing by spawn": lambda: (
        multiprocessing.get_context("spawn").Process(target=print).start()
    ),
    "process pool": lambda: concurrent.futures.ProcessPoolExecutor().submit(print),
    "exit": lambda: os._exit(3),
    "abort": lambda: os.abort(),
    "early fork": lambda: early_fork(),
    "early process": lambda: EarlyPopen(["true"]),
}
SOCKETS: dict[str, Escape] = {
    "socket": socket.socket,
    "early socket": lambda: early_socket(),
    "socket of C": lambda: _socket.socket(),
    "socket pair": socket.socketpair,
    "create_connection": lambda: socket.create_connection(("127.0.0.1", 1)),
    "create_server": lambda: socket.create_server(("127.0.0.1", 0)),
    "name look-up": lambda: socket.getaddrinfo("localhost", 1),
    "gethostbyname": lambda: socket.gethostbyname("localhost"),
    "gethostbyaddr": lambda: socket.gethostbyaddr("127.0.0.1"),
    "TLS in memory": lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(
        ssl.MemoryBIO(), ssl.MemoryBIO()
    ),
}
WAITS: dict[str, Escape] = {
    "sleep": lambda: time.sleep(0.001),
    "select": lambda: select.select([], [], [], 0.001),
    "poll": lambda: select.poll().poll(1),
    "epoll": lambda: select.epoll(),
    "selector": lambda: selectors.SelectSelector().select(0.001),
    "pipe": lambda: os.pipe(),
    "pipe2": lambda: os.pipe2(0),
    "eventfd": lambda: os.eventfd(0),
    "second loop": lambda: asyncio.new_event_loop(),
    "second loop by another name": lambda: asyncio.events.new_event_loop(),
}
SIGNALS: dict[str, Escape] = {
    "signal handler": lambda: signal.signal(signal.SIGUSR1, signal.SIG_DFL),
    "alarm": lambda: signal.alarm(0),
    "interval timer": lambda: signal.setitimer(signal.ITIMER_REAL, 0),
    "wake-up descriptor": lambda: signal.set_wakeup_fd(-1),
    "kill": lambda: os.kill(os.getpid(), 0),
    "killpg": lambda: os.killpg(0, 0),
    "raise_signal": lambda: signal.raise_signal(signal.SIGWINCH),
}
FILES: dict[str, Escape] = {
    "open": lambda: open(__file__),  # noqa: SIM115  (refused before it opens)
    "io.open": lambda: io.open(__file__),  # noqa: UP020, SIM115  (refused before it opens)
    "os.open": lambda: os.open(__file__, os.O_RDONLY),
    "early open": lambda: early_open(__file__, os.O_RDONLY),
    "raw file": lambda: io.FileIO(__file__),
    "pathlib": lambda: Path(__file__).read_text(),
    "exists": lambda: Path(__file__).exists(),
    "stat": lambda: os.stat(__file__),
    "listdir": lambda: os.listdir("/"),
    "scandir": lambda: os.scandir("/"),
    "walk": lambda: glob.glob("/*"),
    "mkdir": lambda: os.mkdir("/"),
    "remove": lambda: os.remove("/nowhere"),
    "rename": lambda: os.rename("/nowhere", "/elsewhere"),
    "rmtree": lambda: shutil.rmtree("/nowhere"),
    "temporary file": lambda: tempfile.mkstemp(),
    "memory file": lambda: os.memfd_create("x"),
    "mapped file": lambda: mmap.mmap(0, 10),
    "database": lambda: sqlite3.connect(":memory:"),
    "library in C": lambda: ctypes.CDLL(None),
}
MACHINE: dict[str, Escape] = {
    "clock_gettime": lambda: time.clock_gettime(time.CLOCK_REALTIME),
    "processor time": lambda: time.process_time(),
    "processor time of a thread": lambda: time.thread_time_ns(),
    "times": lambda: os.times(),
    "load": lambda: os.getloadavg(),
    "entropy of OpenSSL": lambda: ssl.RAND_bytes(1),
}
ESCAPES: dict[str, Escape] = {
    **THREADS,
    **PROCESSES,
    **SOCKETS,
    **WAITS,
    **SIGNALS,
    **FILES,
    **MACHINE,
}
NO_SOCKET = cast("socket.socket", None)
"""Never used: the call is rejected before that."""
LOOP_ESCAPES: dict[str, Callable[[asyncio.AbstractEventLoop], Awaitable[object] | None]] = {
    "add_reader": lambda loop: loop.add_reader(0, print),
    "add_writer": lambda loop: loop.add_writer(0, print),
    "sock_connect": lambda loop: loop.sock_connect(NO_SOCKET, ("127.0.0.1", 1)),
    "sock_sendall": lambda loop: loop.sock_sendall(NO_SOCKET, b""),
    "connect_read_pipe": lambda loop: loop.connect_read_pipe(asyncio.Protocol, None),
    "subprocess": lambda loop: asyncio.create_subprocess_exec("true"),
    "shell": lambda loop: asyncio.create_subprocess_shell("true"),
    "datagrams": lambda loop: loop.create_datagram_endpoint(
        asyncio.DatagramProtocol, ("127.0.0.1", 1)
    ),
    "unix socket": lambda loop: asyncio.open_unix_connection("/nowhere"),
    "TLS": lambda loop: asyncio.open_connection("a", 1, ssl=True),
    "TLS server": lambda loop: asyncio.start_server(
        print, "a", 1, ssl=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ),
    "upgrade to TLS": lambda loop: loop.start_tls(
        cast("asyncio.WriteTransport", None), asyncio.Protocol(), cast("ssl.SSLContext", None)
    ),
}
HARMLESS_OUTSIDE = {
    "socket",
    "open",
    "sleep",
    "select",
    "stat",
    "pathlib",
    "listdir",
    "clock_gettime",
    "processor time",
    "early open",
    "thread of C",
    "pipe",
}
"""Repeated after the simulation, to check that the fence is inactive."""


@pytest.mark.parametrize("name", ESCAPES)
def test_escape_is_rejected_with_its_call_site(name: str) -> None:
    with Simulation(1) as sim:
        host = sim.add_host("a")

        async def escape() -> None:
            ESCAPES[name]()

        with pytest.raises(SimulationEscape, match=r"test_fence\.py:\d+"):
            sim.run_until(sim.spawn(host, escape()))
    assert sim.troubles == [], "the escape itself was raised at its call"


@pytest.mark.parametrize("name", LOOP_ESCAPES)
def test_escape_through_the_loop_is_rejected_with_its_call_site(name: str) -> None:
    with Simulation(1) as sim:
        host = sim.add_host("a")

        async def escape() -> None:
            result = LOOP_ESCAPES[name](asyncio.get_running_loop())
            assert result is not None
            await result

        with pytest.raises(SimulationEscape, match=r"test_fence\.py:\d+"):
            sim.run_until(sim.spawn(host, escape()))


@pytest.mark.parametrize("name", sorted(HARMLESS_OUTSIDE))
def test_fence_is_inactive_outside_of_a_simulation(name: str) -> None:
    with Simulation(1) as sim:
        sim.add_host("a")
        sim.run_for(1)
        result = ESCAPES[name]()
    if name in ("early open", "pipe"):
        for descriptor in result if isinstance(result, tuple) else (result,):
            os.close(descriptor)
    if hasattr(result, "close"):
        result.close()


def test_escape_swallowed_by_a_node_in_a_callback_ends_the_run() -> None:
    with Simulation(1) as sim:
        host = sim.add_host("a")
        sim.loop.schedule(host.process, 1000, open, __file__)
        # SIM115: refused before it opens
        sim.loop.schedule(host.process, 1000, lambda: open(__file__))  # noqa: SIM115
        with pytest.raises(SimulationStopped, match="SimulationEscape"):
            sim.run_for(1)


def test_harness_may_open_files() -> None:
    with Simulation(1) as sim:

        async def read() -> str:
            with open(__file__) as file:  # noqa: ASYNC230  (the harness may block)
                return file.readline()

        assert sim.run_until(read()).startswith('"""Nothing escapes')


def ambient_values() -> list[object]:
    return [
        time.time(), time.time_ns(), time.monotonic(), time.perf_counter(),
        random.random(), random.choice("abc"), random.Random().random(),
        os.urandom(4), os.getrandom(4), uuid.uuid4(), uuid.uuid1(),
        secrets.token_hex(4), random.SystemRandom().random(),
    ]  # fmt: skip


def test_ambient_time_and_randomness_come_from_the_running_host() -> None:
    def draw(seed: int) -> list[list[object]]:
        with Simulation(seed) as sim:
            values = []

            async def ask() -> list[object]:
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
    assert all(x != y for x, y in zip(a[6:], b[6:], strict=True)), (
        "hosts do not share random numbers"
    )
    assert all(x != y for x, y in zip(a[6:], other[0][6:], strict=True)), (
        "seeds do not share random numbers"
    )


def test_host_has_its_own_names_and_calendar() -> None:
    """Whatever differs between machines and processes also comes from the simulated host."""
    with Simulation(1) as sim:
        for name in ("a", "b"):
            sim.add_host(name)

        async def ask() -> tuple[int, int, str, int, time.struct_time, str, str, str]:
            return (
                os.getpid(),
                os.getppid(),
                socket.gethostname(),
                uuid.getnode(),
                time.gmtime(),
                time.strftime("%Y"),
                time.ctime(),
                time.asctime(),
            )

        a, b = (sim.run_until(sim.spawn(name, ask())) for name in ("a", "b"))
        start = time.gmtime(1_700_000_000)
        assert a[:3] == (1001, 1, "a") and b[:3] == (1002, 1, "b") and a[3] != b[3]
        assert a[4] == start and a[5] == "2023" and a[6] == a[7] == time.ctime(1_700_000_000)
        assert time.gmtime(0).tm_year == 1970 and os.getpid() == int(
            Path("/proc/self").readlink().name
        )


def test_outside_of_a_simulation_everything_is_real_again() -> None:
    with Simulation(1) as sim:
        sim.run_for(1)
        assert abs(time.time() - os.stat("/proc/self").st_mtime) < 86400 * 365
        assert ambient_values() != ambient_values()


def test_executor_function_runs_immediately() -> None:
    """Unmodified clients may pass small work to an executor."""
    with Simulation(1) as sim:

        async def ask() -> tuple[int, int]:
            return await asyncio.to_thread(threading.get_ident), threading.get_ident()

        assert len(set(sim.run_until(ask()))) == 1
