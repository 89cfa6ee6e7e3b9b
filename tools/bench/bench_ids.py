"""Measures how many producer ids per second a broker returns, over one connection and over 16, with
8 requests in flight each.

    python -m tools.bench.bench_ids [--seconds 4] [--rounds 3]

Raw frames, so that the load generator is cheap; COORDINATOR_LOAD_IN_PROGRESS is retried at once and
not counted. The same generator also uses a node that returns a constant response: the limit of the
generator, the wake-ups of two processes and the interpreter. Rounds alternate between the three.
CPU is that of the broker for each request, and does not depend on the generator.
"""

import argparse
import asyncio
import struct
import sys
import time
from collections import defaultdict
from contextlib import ExitStack
from typing import NamedTuple, cast

import uvloop

from protocol.messages.k22_init_producer_id import InitProducerIdRequest
from protocol.requests import request_chunks
from tools.bench.clusters import CONSTANT, Cluster, cluster
from tools.bench.result import Basis, report_cost, report_rate
from tools.bench.subjects import APACHE_KAFKA, KRAFTSIM, subjects

VERSION = 4
LOADS = ((1, 1), (16, 8))
FRAME = b"".join(
    request_chunks(
        22,
        VERSION,
        7,
        "bench",
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
    )
)
ANSWER_BYTES = 4 + 4 + 1 + 4 + 2 + 8 + 2 + 1
ERROR = struct.Struct(">h").unpack_from
ERROR_AT = 4 + 4 + 1 + 4


class Requester(asyncio.Protocol):
    """One connection that keeps its requests in flight."""

    def __init__(self, in_flight: int) -> None:
        self.in_flight = in_flight
        self.answered = 0
        self.refused = 0
        self.rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Fill the pipe."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(FRAME * self.in_flight)

    def data_received(self, data: bytes) -> None:
        """Count the responses, and send as many requests."""
        data = self.rest + data
        count = len(data) // ANSWER_BYTES
        for index in range(count):
            if ERROR(data, index * ANSWER_BYTES + ERROR_AT)[0]:
                self.refused += 1
            else:
                self.answered += 1
        self.rest = data[count * ANSWER_BYTES :]
        if count:
            self.transport.write(FRAME * count)


class Rates(NamedTuple):
    """Ids and requests per second, and CPU microseconds of the broker for a request."""

    ids: float
    requests: float
    cpu_us: float


async def load(running: Cluster, connections: int, in_flight: int, seconds: float) -> Rates:
    """Measure one round."""
    host, _, port = running.bootstrap.partition(":")
    loop = asyncio.get_running_loop()
    requesters = [Requester(in_flight) for _ in range(connections)]
    for requester in requesters:
        # misc: mypy infers no type for a lambda with a default
        await loop.create_connection(lambda requester=requester: requester, host, int(port))  # type: ignore[misc]
    await asyncio.sleep(0.5)
    before = [(requester.answered, requester.refused) for requester in requesters]
    used, began = running.cpu_seconds(), time.perf_counter()
    await asyncio.sleep(seconds)
    took, used = time.perf_counter() - began, running.cpu_seconds() - used
    answered = sum(
        requester.answered - first for requester, (first, _) in zip(requesters, before, strict=True)
    )
    refused = sum(
        requester.refused - first for requester, (_, first) in zip(requesters, before, strict=True)
    )
    for requester in requesters:
        requester.transport.abort()
    await asyncio.sleep(0.1)
    requests = answered + refused
    return Rates(answered / took, requests / took, used * 1_000_000 / requests)


def main() -> int:
    """Measure all subjects in turn, in the opposite order each time; and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    names = [*subjects(), CONSTANT]
    with ExitStack() as opened:
        clusters = {name: opened.enter_context(cluster(name)) for name in names}
        for connections, in_flight in LOADS:
            figures: dict[str, list[Rates]] = defaultdict(list)
            for number in range(options.rounds + 1):
                for name in names if number % 2 else names[::-1]:
                    found = uvloop.run(
                        load(clusters[name], connections, in_flight, options.seconds)
                    )
                    if number == 0:
                        continue  # a warm-up
                    figures[name].append(found)
                    print(
                        f"{name:20s} {connections:3d} x {in_flight}: {found.ids:9.0f} ids/s "
                        f"({found.requests:.0f} requests/s, {found.cpu_us:.1f} us of CPU for each)",
                        flush=True,
                    )
            report_shape(connections, in_flight, figures)
    return 0


def report_shape(connections: int, in_flight: int, figures: dict[str, list[Rates]]) -> None:
    """Report ids per second of a load, beside Apache Kafka and a constant response, and the
    CPU time of a request.
    """
    name = f"{connections}x{in_flight}"
    title = f"InitProducerId, {connections} connections with {in_flight} in flight each"
    ours, theirs, constant = (figures.get(each, []) for each in (KRAFTSIM, APACHE_KAFKA, CONSTANT))
    ids = [each.ids for each in ours]
    report_rate(
        f"ids.{name}",
        title,
        "ids/s",
        ids,
        peer=APACHE_KAFKA,
        peer_values=[each.ids for each in theirs],
    )
    report_rate(
        f"ids.beside_constant.{name}",
        f"{title}, beside a constant response",
        "ids/s",
        ids,
        peer=CONSTANT,
        peer_values=[each.ids for each in constant],
    )
    report_cost(
        f"ids.cpu.{name}",
        f"CPU time of the broker, {title}",
        "us",
        [each.cpu_us for each in ours],
        basis=Basis.CPU,
        peer=APACHE_KAFKA,
        peer_values=[each.cpu_us for each in theirs],
    )


if __name__ == "__main__":
    sys.exit(main())
