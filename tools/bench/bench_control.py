"""HTTP control: what it costs a cluster to start with it, and whether it keeps memory.

    python -m tools.bench control --hours 8       # 28,800 operations, one for each second

`--hours N` drives as many operations as a person, a page and a program together send in N hours at
one a second, as fast as they are answered, against an embedded cluster of three brokers behind the
proxy: reads, faults of requests, cuts, event streams, refused calls, kills and restarts. Ten
samples of this process, which has the server, the client and all nodes, and of the proxy's, after
the first quarter, when everything that is kept up to a limit has reached it.
"""

import argparse
import asyncio
import gc
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import httpx
import psutil

import kraftsim
from kraftsim.cluster.directories import RunDirectory, read_state
from kraftsim.cluster.ports import free_port_range
from kraftsim.control.client import AsyncControlClient, ControlRefused
from tools.bench.result import Basis, report_cost

SAMPLES = 10
SETTLED = 0.25
"""The share of the operations after which samples count."""
SECONDS_PER_HOUR = 3600
STREAM_EVENTS = 5
WEIGHTS = {
    "read": 40,
    "fault": 20,
    "link": 20,
    "refused": 12,
    "stream": 6,
    "restart": 2,
}
READS = ("/v1/nodes", "/v1/state", "/v1/topics", "/v1/quorum", "/v1/request-faults", "/metrics")
REFUSED = (
    ("GET", "/v1/nodes?x=1", 400),
    ("POST", "/v1/nodes/broker-9/kill", 404),
    ("POST", "/v1/nodes/broker-1/pause", 409),
    ("POST", "/v1/network/cut", 400),
    ("DELETE", "/v1/nodes", 405),
    ("GET", "/nothing", 404),
)


# Start
# --------------------------------------------------------------------------------------------------


def start_cost(rounds: int) -> None:
    """Report seconds until a cluster is ready, and CPU time and memory of its supervisor."""
    found: dict[str, list[tuple[float, float, float]]] = {"without": [], "with": []}
    for _ in range(rounds):
        for name, options in (("without", ()), ("with", ("--http", "0"))):
            found[name].append(_started(options))
    for name, rows in found.items():
        wall, cpu, mib = zip(*rows, strict=True)
        what = f"{name} --http"
        report_cost(f"control.ready.{name}", f"ready after `up` {what}", "s", wall)
        title = f"CPU time of the supervisor {what}"
        report_cost(f"control.cpu.{name}", title, "s", cpu, basis=Basis.CPU)
        title = f"memory of the supervisor {what}"
        report_cost(f"control.memory.{name}", title, "MiB", mib, basis=Basis.SIZE)


def _started(options: tuple[str, ...]) -> tuple[float, float, float]:
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "up"
        words = [sys.executable, "-m", "kraftsim", "up", "--brokers", "1", "--data", str(data)]
        port = str(free_port_range(1))
        began = time.monotonic()
        subprocess.run(
            [*words, "--port", port, "--detach", *options], check=True, capture_output=True
        )
        wall = time.monotonic() - began
        state = read_state(RunDirectory(data))
        assert state is not None, "the cluster is up"
        supervisor = psutil.Process(state.supervisor)
        times, memory = supervisor.cpu_times(), supervisor.memory_info().rss
        stop = [sys.executable, "-m", "kraftsim", "down", "--data", str(data)]
        subprocess.run(stop, check=True, capture_output=True)
    return wall, times.user + times.system, memory / 2**20


# Hours
# --------------------------------------------------------------------------------------------------


class Operator:
    """Sends operations, chosen by a seed."""

    def __init__(self, client: AsyncControlClient, seed: int) -> None:
        self._client = client
        self._random = random.Random(seed)
        self._http = httpx.AsyncClient(base_url=client.url, trust_env=False)
        self._own = {"Authorization": f"Bearer {client.token}"}
        self.done: Counter[str] = Counter()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def operate(self) -> None:
        """Send one operation."""
        (kind,) = self._random.choices(list(WEIGHTS), list(WEIGHTS.values()))
        await getattr(self, f"_{kind}")()
        self.done[kind] += 1

    async def _read(self) -> None:
        answer = await self._http.get(self._random.choice(READS), headers=self._own)
        assert answer.status_code == 200, answer.text

    async def _fault(self) -> None:
        report = await self._client.inject("EndTxn error=CONCURRENT_TRANSACTIONS times=3")
        assert (await self._client.end_fault(report.number)).is_over

    async def _link(self) -> None:
        (imposed,) = await self._client.cut(f"clients<>broker-{self._random.randint(1, 3)}")
        if self._random.random() < 0.5:
            await self._client.lift(imposed.number)
        else:
            assert await self._client.heal() == 1

    async def _refused(self) -> None:
        method, path, status = self._random.choice(REFUSED)
        answer = await self._http.request(method, path, headers=self._own)
        assert answer.status_code == status, answer.text
        assert (await self._http.request(method, path)).status_code == 401

    async def _stream(self) -> None:
        left = STREAM_EVENTS
        stream = self._client.events(begin="start")
        async for _ in stream:
            left -= 1
            if not left:
                break
        with suppress(RuntimeError):
            await stream.aclose()  # type: ignore[attr-defined]  # an iterator that is a generator

    async def _restart(self) -> None:
        node = f"broker-{self._random.randint(1, 3)}"
        with suppress(ControlRefused):
            await self._client.kill(node)
        await self._client.restart(node)


def _sample(name: str, operations: int) -> tuple[float, int, int, int, float, int]:
    gc.collect()
    own = psutil.Process()
    proxies = [each for each in own.children() if "kraftsim.cluster.proxy" in each.cmdline()]
    proxy_mib = sum(each.memory_info().rss for each in proxies) / 2**20
    proxy_fds = sum(each.num_fds() for each in proxies)
    row = (
        own.memory_info().rss / 2**20,
        len(gc.get_objects()),
        own.num_fds(),
        threading.active_count(),
        proxy_mib,
        proxy_fds,
    )
    print(
        f"{name:>6} {operations:>7,} operations: {row[0]:7.1f} MiB, {row[1]:>9,} objects, "
        f"{row[2]} descriptors, {row[3]} threads; proxy {row[4]:.1f} MiB, {row[5]} descriptors",
        flush=True,
    )
    return row


async def _hours(client: AsyncControlClient, hours: float, seed: int) -> None:
    operations = round(hours * SECONDS_PER_HOUR)
    operator = Operator(client, seed)
    began = time.monotonic()
    first = round(operations * SETTLED)
    marks = [first + (operations - first) * number // (SAMPLES - 1) for number in range(SAMPLES)]
    rows = []
    _sample("start", 0)
    for number in range(1, operations + 1):
        await operator.operate()
        if number in marks:
            rows.append((number, *_sample("", number)))
    await operator.close()
    took = time.monotonic() - began
    print(f"{operations:,} operations in {took:.0f} s: {dict(sorted(operator.done.items()))}")
    for name, column in (("KiB", 1), ("objects", 2), ("proxy KiB", 5)):
        slope, _ = statistics.linear_regression(
            [row[0] for row in rows],
            [row[column] * (1024 if "KiB" in name else 1) for row in rows],
        )
        print(f"growth by 1,000 operations, after the first quarter: {slope * 1000:.1f} {name}")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hours", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    if given.rounds:
        start_cost(given.rounds)
    if not given.hours:
        return
    with kraftsim.Cluster(brokers=3, http=True, network_faults=True) as cluster:
        cluster.create_topic("orders", partitions=6)
        with cluster.serve_http() as control:

            async def run() -> None:
                async with AsyncControlClient(control.url, control.token) as client:
                    await _hours(client, given.hours, given.seed)

            asyncio.run(run())


if __name__ == "__main__":
    main()
