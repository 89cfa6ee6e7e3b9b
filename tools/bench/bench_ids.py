"""Measures how many producer ids per second a broker returns, over one connection and over 16, with
8 requests in flight each.

    python -m tools.bench.bench_ids [--seconds 4] [--rounds 3]

Raw frames, so that the load generator is cheap; COORDINATOR_LOAD_IN_PROGRESS is retried at once and
not counted.
"""

import argparse
import asyncio
import struct
import sys
import time
from collections import defaultdict
from statistics import median
from typing import cast

import uvloop

from protocol.messages.k22_init_producer_id import InitProducerIdRequest
from protocol.requests import request_chunks
from tools.bench.subjects import APACHE_KAFKA, KRAFTSIM, subject, subjects

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


async def load(
    bootstrap: str, connections: int, in_flight: int, seconds: float
) -> tuple[float, float]:
    """Return ids per second and requests per second."""
    host, _, port = bootstrap.partition(":")
    loop = asyncio.get_running_loop()
    requesters = [Requester(in_flight) for _ in range(connections)]
    for requester in requesters:
        # misc: mypy infers no type for a lambda with a default
        await loop.create_connection(lambda requester=requester: requester, host, int(port))  # type: ignore[misc]
    await asyncio.sleep(0.5)
    before = [(requester.answered, requester.refused) for requester in requesters]
    began = time.perf_counter()
    await asyncio.sleep(seconds)
    took = time.perf_counter() - began
    answered = sum(
        requester.answered - first for requester, (first, _) in zip(requesters, before, strict=True)
    )
    refused = sum(
        requester.refused - first for requester, (_, first) in zip(requesters, before, strict=True)
    )
    for requester in requesters:
        requester.transport.abort()
    await asyncio.sleep(0.1)
    return answered / took, (answered + refused) / took


def main() -> int:
    """Measure every subject in turn and print medians and ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rates: dict[tuple[str, tuple[int, int]], list[float]] = defaultdict(list)
    for name in subjects():
        with subject(name) as bootstrap:
            for connections, in_flight in LOADS:
                uvloop.run(
                    load(bootstrap, connections, in_flight, options.seconds)
                )  # warm-up, not counted
                for _ in range(options.rounds):
                    ids, requests = uvloop.run(
                        load(bootstrap, connections, in_flight, options.seconds)
                    )
                    rates[name, (connections, in_flight)].append(ids)
                    print(
                        f"{name:20s} {connections:3d} x {in_flight}: {ids:9.0f} ids/s "
                        f"({requests:.0f} requests/s)",
                        flush=True,
                    )
    for shape in LOADS:
        ours = median(rates[KRAFTSIM, shape])
        line = f"{shape[0]} x {shape[1]}: kraftsim {ours:.0f} ids/s"
        if (APACHE_KAFKA, shape) in rates:
            theirs = median(rates[APACHE_KAFKA, shape])
            line += f", Apache Kafka {theirs:.0f} ids/s, ratio {ours / theirs:.2f}"
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
