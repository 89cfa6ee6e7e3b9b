"""Measures committed writes per second of a quorum of three: AllocateProducerIds, with a response
once a majority has flushed.

    python -m tools.bench.bench_writes [--seconds 4] [--rounds 3]

Apache Kafka processes one request of a connection at a time and batches writes for up to 25 ms, so
it needs many connections to be fast: both systems are measured with few and many. Raw frames, so
that the load generator is cheap; only responses without an error are counted. Our responses are
sent after a majority has flushed.
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

from protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest
from protocol.requests import request_chunks
from tools.bench.quorums import BROKER_ID, QuorumClient, quorum
from tools.bench.result import report_rate
from tools.bench.subjects import APACHE_KAFKA, KRAFTSIM, subjects

LOADS = ((1, 1), (16, 8), (256, 4))
ANSWER_BYTES = 4 + 4 + 1 + 4 + 2 + 8 + 4 + 1
ERROR = struct.Struct(">h").unpack_from
ERROR_AT = 4 + 4 + 1 + 4


class Writer(asyncio.Protocol):
    """One connection that keeps its requests in flight."""

    def __init__(self, frame: bytes, in_flight: int) -> None:
        self.frame = frame
        self.in_flight = in_flight
        self.answered = 0
        self.refused = 0
        self.rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Fill the pipe."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self.frame * self.in_flight)

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
            self.transport.write(self.frame * count)


async def load(address: str, frame: bytes, shape: tuple[int, int], seconds: float) -> float:
    """Return committed writes per second."""
    host, _, port = address.partition(":")
    loop = asyncio.get_running_loop()
    connections, in_flight = shape
    writers = [Writer(frame, in_flight) for _ in range(connections)]
    for writer in writers:
        # misc: mypy infers no type for a lambda with a default
        await loop.create_connection(lambda writer=writer: writer, host, int(port))  # type: ignore[misc]
    await asyncio.sleep(0.5)
    before = sum(writer.answered for writer in writers)
    began = time.perf_counter()
    await asyncio.sleep(seconds)
    rate = (sum(writer.answered for writer in writers) - before) / (time.perf_counter() - began)
    assert not any(writer.refused for writer in writers), "the controller remains active"
    for writer in writers:
        writer.transport.abort()
    await asyncio.sleep(0.1)
    return rate


def measure(name: str, seconds: float, rounds: int) -> dict[tuple[int, int], list[float]]:
    """Return the rates of one kind of quorum by shape of the load."""
    rates: dict[tuple[int, int], list[float]] = defaultdict(list)
    with quorum(name) as running:
        client = QuorumClient(running.addresses)
        client.register()
        leader = running.addresses[client.allocate()]
        request = AllocateProducerIdsRequest(broker_id=BROKER_ID, broker_epoch=client.broker_epoch)
        client.close()
        frame = b"".join(request_chunks(67, 0, 7, "bench", request))
        for shape in LOADS:
            uvloop.run(load(leader, frame, shape, seconds / 2))  # warm-up, not counted
            for _ in range(rounds):
                rates[shape].append(uvloop.run(load(leader, frame, shape, seconds)))
            print(
                f"{name:20s} {shape[0]:3d} x {shape[1]}: {spread(rates[shape])} writes/s",
                flush=True,
            )
    return rates


def spread(rates: list[float]) -> str:
    """Return the median, and the worst and the best."""
    return f"{median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


def main() -> int:
    """Measure both kinds, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found = {name: measure(name, options.seconds, options.rounds) for name in subjects()}
    for shape in LOADS:
        report_rate(
            f"writes.{shape[0]}x{shape[1]}",
            f"committed metadata writes, {shape[0]} connections with {shape[1]} in flight each",
            "writes/s",
            found[KRAFTSIM][shape],
            peer=APACHE_KAFKA,
            peer_values=found[APACHE_KAFKA][shape] if APACHE_KAFKA in found else (),
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
