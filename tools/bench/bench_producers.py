"""Measures the memory of 100,000 producers in a partition's producer state: our broker's resident
memory, and Apache Kafka 3.9.1's heap histogram.

python -m tools.bench.bench_producers [--producers 100000] [--batches 1]

Each id writes --batches batches of one record to one partition, through the same raw connection,
acks=1, many in flight, without InitProducerId. Ours is the total growth of the broker process.
Apache Kafka's is the size of the classes of its producer state (`jcmd GC.class_histogram` after a
full collection), before and after; objects of the Java library that belong to it are counted where
they grew.
"""

import argparse
import asyncio
import re
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from struct import Struct
from typing import cast

import psutil
import uvloop
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.batches import RecordBatch, build_batch
from protocol.records.record import Record
from protocol.requests import decode_response, request_chunks
from tools.bench.clusters import cluster
from tools.bench.result import Basis, report_cost
from tools.bench.subjects import APACHE_KAFKA, KRAFTSIM, subjects

TOPIC = "ids"
FIRST_ID = 5_000_000
IN_FLIGHT = 200
VERSION = 9
SIZE = Struct(">i")
ROW = re.compile(r"\s*\d+:\s+(\d+)\s+(\d+)\s+(\S+)")
OF_THE_STATE = ("ProducerStateEntry", "BatchMetadata", "VerificationStateEntry", "TxnMetadata")
OF_JAVA = (
    *(
        "java.util.HashMap$Node",
        "[Ljava.util.HashMap$Node;",
        "java.lang.Long",
        "java.util.ArrayDeque",
        "[Ljava.lang.Object;",
    ),
    *(
        "java.util.OptionalLong",
        "java.util.concurrent.ConcurrentHashMap$Node",
        "[Ljava.util.concurrent.ConcurrentHashMap$Node;",
    ),
)
"""The Java classes of the map, the numbers and the queues of the state."""


class Writer(asyncio.Protocol):
    """Sends one batch for each id in turn, many in flight; done when all have responses."""

    def __init__(self, frames: list[bytes]) -> None:
        self._frames = frames
        self._next = self._answered = 0
        self._rest = b""
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Fill the pipe."""
        self._transport = cast(asyncio.Transport, transport)
        self._send(IN_FLIGHT)

    def data_received(self, data: bytes) -> None:
        """Check every response, and send as many requests."""
        data = self._rest + data
        position = count = 0
        while len(data) - position >= SIZE.size:
            end = position + SIZE.size + SIZE.unpack_from(data, position)[0]
            if end > len(data):
                break
            _, answer = decode_response(0, VERSION, data[position + SIZE.size : end])
            assert isinstance(answer, ProduceResponse), "the response of Produce"
            error = answer.responses[0].partition_responses[0].error_code
            assert not error, f"error {error}"
            position, count = end, count + 1
        self._rest = data[position:]
        self._answered += count
        if self._answered == len(self._frames):
            self.done.set_result(None)
        self._send(count)

    def _send(self, count: int) -> None:
        frames = self._frames[self._next : self._next + count]
        self._next += len(frames)
        if frames:
            self._transport.write(b"".join(frames))


def frame(producer_id: int, sequence: int) -> bytes:
    """Return a Produce request of one record."""
    records = build_batch(
        [Record(timestamp=time.time_ns() // 1_000_000, value=b"v")],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    )
    assert RecordBatch(records).producer_id == producer_id, "the batch has its producer id"
    data = TopicProduceData(
        name=TOPIC, partition_data=[PartitionProduceData(index=0, records=records)]
    )
    return b"".join(
        request_chunks(
            0, VERSION, 1, "ids", ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data])
        )
    )


async def write(bootstrap: str, producers: range, batches: int) -> None:
    """Write the batches of every id."""
    host, _, port = bootstrap.partition(":")
    for sequence in range(batches):
        frames = [frame(producer_id, sequence) for producer_id in producers]
        _, writer = await asyncio.get_running_loop().create_connection(
            partial(Writer, frames), host, int(port)
        )
        await writer.done


def histogram(pid: int) -> dict[str, int]:
    """Return the bytes of each class of a Java process, after a full collection."""
    java = Path(shutil.which("java") or "java").resolve()
    jcmd = java.with_name("jcmd")
    printed = subprocess.run(
        [str(jcmd), str(pid), "GC.class_histogram"], capture_output=True, text=True, check=True
    ).stdout
    found: dict[str, int] = {}
    for line in printed.splitlines():
        row = ROW.match(line)
        if row is not None:
            found[row[3]] = found.get(row[3], 0) + int(row[2])
    return found


def of_the_state(before: dict[str, int], after: dict[str, int]) -> int:
    """Return the growth of the producer state in bytes."""
    grown = 0
    for name, size in after.items():
        if name.rpartition(".")[2].partition("$")[0] in OF_THE_STATE or name in OF_JAVA:
            grown += max(size - before.get(name, 0), 0)
    return grown


def main() -> int:
    """Measure both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--producers", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=1)
    options = parser.parse_args()
    warm, ids = range(FIRST_ID - 2000, FIRST_ID), range(FIRST_ID, FIRST_ID + options.producers)
    found: dict[str, float] = {}
    for name in subjects():
        with cluster(name) as running:
            admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
            admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
            uvloop.run(write(running.bootstrap, warm, 1))
            pid = running.brokers[1]
            resident = psutil.Process(pid).memory_info().rss
            before = histogram(pid) if name == APACHE_KAFKA else {}
            uvloop.run(write(running.bootstrap, ids, options.batches))
            grown = psutil.Process(pid).memory_info().rss - resident
            found[name] = (
                grown if name == KRAFTSIM else of_the_state(before, histogram(pid))
            ) / options.producers
    report_cost(
        f"producers.bytes.{options.batches}",
        f"memory of a producer id with {options.batches} batches: growth of the process, and heap "
        "histogram of Apache Kafka",
        "bytes",
        [found[KRAFTSIM]],
        basis=Basis.SIZE,
        peer=APACHE_KAFKA,
        peer_values=[found[APACHE_KAFKA]] if APACHE_KAFKA in found else (),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
