"""Measures how many pipelined InitProducerId frames per second one core serves, with connection,
codec and a handler with a constant response.

    python -m tools.bench.bench_frames [--seconds 3] [--rounds 5]

The server has its own core; the load generator replays encoded bytes from another one and only
counts responses. The result is frames per second of the server's CPU time, user and system
together, as accounted by the kernel: it is independent of other load on the machine.
"""

import argparse
import asyncio
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import cast

import uvloop

from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.requests import request_chunks, response_chunks
from tools.bench.result import Basis, report_rate

VERSION = 4
LOADS = ((1, 64), (16, 16), (16, 64), (100, 16))
"""Connections, frames in flight on each."""
FRAME = b"".join(
    request_chunks(
        22,
        VERSION,
        7,
        "bench",
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
    )
)
ANSWER = b"".join(
    response_chunks(22, VERSION, 7, InitProducerIdResponse(producer_id=1_000, producer_epoch=0))
)
NANOSECONDS = 1_000_000_000
WARM_UP_S = 0.3


class Replayer(asyncio.Protocol):
    """One connection that keeps its frames in flight."""

    def __init__(self, in_flight: int) -> None:
        self.answered_bytes = 0
        self._requests = FRAME * in_flight
        self._owed_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Fill the pipe."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._requests)

    def data_received(self, data: bytes) -> None:
        """Send another request for each complete response."""
        self.answered_bytes += len(data)
        self._owed_bytes += len(data)
        count, self._owed_bytes = divmod(self._owed_bytes, len(ANSWER))
        self._transport.write(memoryview(self._requests)[: count * len(FRAME)])

    def close(self) -> None:
        """Close the connection."""
        self._transport.abort()


async def load(
    port: int, server_pid: int, connections: int, in_flight: int, seconds: float
) -> tuple[float, float]:
    """Return frames per second of the server's CPU time, and of wall-clock time."""
    loop = asyncio.get_running_loop()
    replayers = [Replayer(in_flight) for _ in range(connections)]
    for replayer in replayers:
        # misc: mypy infers no type for a lambda with a default
        await loop.create_connection(lambda replayer=replayer: replayer, "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.sleep(WARM_UP_S)
    bytes_before, busy_before, began = (
        sum(each.answered_bytes for each in replayers),
        busy_ns(server_pid),
        time.perf_counter(),
    )
    await asyncio.sleep(seconds)
    frames = (sum(each.answered_bytes for each in replayers) - bytes_before) / len(ANSWER)
    busy_s, took_s = (busy_ns(server_pid) - busy_before) / NANOSECONDS, time.perf_counter() - began
    for replayer in replayers:
        replayer.close()
    await asyncio.sleep(0.1)
    return frames / busy_s, frames / took_s


def busy_ns(pid: int) -> int:
    """Return the CPU time of a single-threaded process, from the kernel's scheduler."""
    return sum(
        int((task / "schedstat").read_text().split()[0])
        for task in Path(f"/proc/{pid}/task").iterdir()
    )


@contextmanager
def server(core: int | None) -> Iterator[tuple[int, int]]:
    """Run the server; yield its port and process id."""
    where = [] if core is None else ["--core", str(core)]
    with subprocess.Popen(
        [sys.executable, "-m", "tools.bench.frames_server", *where],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None and process.stdout is not None, "both are pipes"
        try:
            yield int(process.stdout.readline()), process.pid
        finally:
            process.stdin.close()


def check_answers(port: int) -> None:
    """Send two requests and compare every byte, so that only correct responses are counted."""
    import socket

    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(FRAME * 2)
        got = client.recv(2 * len(ANSWER), socket.MSG_WAITALL)
    size, correlation_id = struct.unpack_from(">ii", got)
    assert got == ANSWER * 2 and (size, correlation_id) == (len(ANSWER) - 4, 7), (
        f"the server responded {got!r}"
    )


def main() -> int:
    """Measure every load and print medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    server_core = cores[0] if len(cores) > 1 else None
    if server_core is not None:
        os.sched_setaffinity(0, set(cores[1:]))
    with server(server_core) as (port, pid):
        check_answers(port)
        for connections, in_flight in LOADS:
            rates = [
                uvloop.run(load(port, pid, connections, in_flight, options.seconds))
                for _ in range(options.rounds)
            ]
            report_rate(
                f"frames.{connections}x{in_flight}",
                f"{connections} connections with {in_flight} frames in flight each",
                "frames per CPU second",
                [by_cpu for by_cpu, _ in rates],
                basis=Basis.CPU,
            )
            print(f"  on the wall {median(by_wall for _, by_wall in rates):,.0f}/s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
