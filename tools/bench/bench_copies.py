"""Counts how often a broker copies each record byte between a socket and a log, and measures the
cost.

    python -m tools.bench.bench_copies [--megabytes 96] [--rounds 7]

Copies in user space are counted: the broker runs with counting versions of the copying functions of
the C library (memcpy, memmove, and realloc that moves a block; `count_copies.c`, needs a C
compiler). Copies in the kernel are not counted: for Produce one from the socket and one to the page
cache, for Fetch one to the socket unless the broker uses sendfile. CPU time is measured in other
runs, without the counter, and compared with a broker that copies every frame as before zero-copy
frames; rounds alternate. Other load only adds CPU time, so the best rounds are the most accurate.
"""

import argparse
import mmap
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from protocol.messages.k00_produce import (
    ACKS_ALL,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.records.batches import build_batch
from protocol.records.record import Record
from protocol.requests import request_chunks
from tests.cluster.broker_client import broker_client
from tools.bench.bench_frames import NANOSECONDS, busy_ns
from tools.bench.result import Basis, report_cost, report_rate

KIBIBYTE, MEBIBYTE = 1 << 10, 1 << 20
BATCH_BYTES = (16 * KIBIBYTE, MEBIBYTE)
IN_FLIGHT = 4
PRODUCE, FETCH = "produce", "fetch"
PRODUCE_VERSION, FETCH_VERSION = 9, 12
AS_IT_IS, COPYING = "as it is", "copying"
SOURCE = Path(__file__).with_name("count_copies.c")
COUNTS = struct.Struct("=QQ")


@dataclass(frozen=True, slots=True)
class Server:
    """A broker to measure."""

    address: str
    pid: int
    counts: mmap.mmap | None

    def copied_bytes(self) -> int:
        """Return the bytes that it has copied so far."""
        return 0 if self.counts is None else int(COUNTS.unpack_from(self.counts)[0])


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one load."""

    record_bytes: int
    copied_bytes: int
    busy_s: float

    @property
    def copies(self) -> float:
        """Copies of each byte of records."""
        return self.copied_bytes / self.record_bytes

    @property
    def rate(self) -> float:
        """MB of records per second of the server's CPU time."""
        return self.record_bytes / 1e6 / self.busy_s


@contextmanager
def server(mode: str, library: Path | None = None) -> Iterator[Server]:
    """Run a broker, with the copy counter if its library is given."""
    environment, counts = dict(os.environ), None
    with tempfile.NamedTemporaryFile(prefix="kraftsim-copies-") as file:
        if library is not None:
            file.write(bytes(COUNTS.size))
            file.flush()
            counts = mmap.mmap(file.fileno(), COUNTS.size)
            environment |= {"LD_PRELOAD": str(library), "COPIES_FILE": file.name}
        command = [
            sys.executable,
            "-m",
            "tools.bench.copies_server",
            *(["--copying"] if mode == COPYING else []),
        ]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        ) as process:
            assert process.stdin is not None and process.stdout is not None, "both are pipes"
            try:
                yield Server(process.stdout.readline().decode().strip(), process.pid, counts)
            finally:
                process.stdin.close()


def batch_of(size_bytes: int) -> bytes:
    """Build a batch of one record that has exactly this size."""
    value_bytes, batch = size_bytes, b""
    while len(batch) != size_bytes:
        value_bytes += size_bytes - len(batch) if batch else -100
        batch = build_batch([Record(timestamp=0, key=None, value=os.urandom(value_bytes))])
    return batch


def produce_frame(batch: bytes) -> bytes:
    """Build a Produce request of one batch."""
    data = [
        TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
    ]
    return b"".join(
        request_chunks(
            0,
            PRODUCE_VERSION,
            1,
            "bench",
            ProduceRequest(acks=ACKS_ALL, timeout_ms=1000, topic_data=data),
        )
    )


def fetch_frame(offset: int, size_bytes: int) -> bytes:
    """Build a Fetch request that gets one batch of this size."""
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=size_bytes)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 30,
        topics=[FetchTopic(topic="t", partitions=[asked])],
    )
    return b"".join(request_chunks(1, FETCH_VERSION, 1, "bench", request))


class Client:
    """A blocking connection with a few requests in flight.

    Only the sizes of responses are checked: each must hold what was requested.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._room = memoryview(bytearray(2 * MEBIBYTE))

    def run(self, frames: Iterator[bytes], count: int, answer_bytes_min: int) -> None:
        """Send `count` frames and read their responses."""
        for sent in range(count + IN_FLIGHT):
            if sent < count:
                self._socket.sendall(next(frames))
            if sent >= IN_FLIGHT:
                self._read_answer(answer_bytes_min)

    def _read_answer(self, answer_bytes_min: int) -> None:
        size = int.from_bytes(self._read(4))
        assert size >= answer_bytes_min, f"an answer of {size} bytes"
        self._read(size)

    def _read(self, size_bytes: int) -> memoryview:
        got_bytes = 0
        while got_bytes < size_bytes:
            step_bytes = self._socket.recv_into(self._room[got_bytes:size_bytes])
            assert step_bytes, "the broker closed the connection"
            got_bytes += step_bytes
        return self._room[:size_bytes]


def loads(broker: Server, size_bytes: int, megabytes: int) -> Iterator[tuple[str, Cost]]:
    """Produce that many megabytes, then fetch all of them."""
    count, batch = megabytes * MEBIBYTE // size_bytes, batch_of(size_bytes)
    with broker_client(broker.address) as requester:
        requester.create_topic("t")
        assert not requester.produce("t", batch).error_code, "the topic is there"
        client, frame = Client(broker.address), produce_frame(batch)
        client.run(
            iter([frame] * IN_FLIGHT), IN_FLIGHT, 0
        )  # warm-up: the connection adapts to its first frames
        yield (
            PRODUCE,
            cost(broker, count * size_bytes, lambda: client.run(iter([frame] * count), count, 0)),
        )
        assert requester.produce("t", batch).base_offset == 1 + IN_FLIGHT + count, (
            "every batch was appended"
        )
    fetches = iter([fetch_frame(offset, size_bytes) for offset in range(count)])
    yield FETCH, cost(broker, count * size_bytes, lambda: client.run(fetches, count, size_bytes))


def cost(broker: Server, record_bytes: int, work: Callable[[], None]) -> Cost:
    """Run a load and return its cost."""
    copied_earlier, busy_before = broker.copied_bytes(), busy_ns(broker.pid)
    work()
    return Cost(
        record_bytes,
        broker.copied_bytes() - copied_earlier,
        (busy_ns(broker.pid) - busy_before) / NANOSECONDS,
    )


def counting_library(directory: Path) -> Path | None:
    """Compile the counter and check that it counts; None without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        print("copies are not counted: there is no C compiler on this machine")
        return None
    library = directory / "count_copies.so"
    flags = ["-O2", "-fno-builtin", "-fno-tree-loop-distribute-patterns", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", str(library), str(SOURCE), "-ldl"], check=True)
    file = directory / "counts"
    file.write_bytes(bytes(COUNTS.size))
    known = (
        "data = bytes(1 << 20)\nfor _ in range(100): data[1:]\nfor _ in range(50): bytearray(data)"
    )
    subprocess.run(
        [sys.executable, "-c", known],
        check=True,
        env={**os.environ, "LD_PRELOAD": str(library), "COPIES_FILE": str(file)},
    )
    counted = COUNTS.unpack(file.read_bytes())[0] / MEBIBYTE
    assert 150 <= counted < 155, f"150 MiB were copied, {counted:.1f} were counted"
    return library


def main() -> int:
    """Count, then measure, and report both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    copies: dict[tuple[str, str, int], float] = {}
    rates: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="kraftsim-copies-") as directory:
        library = counting_library(Path(directory))
        for mode in (COPYING, AS_IT_IS):
            for size_bytes in BATCH_BYTES if library is not None else ():
                with server(mode, library) as broker:
                    copies |= {
                        (mode, load, size_bytes): spent.copies
                        for load, spent in loads(broker, size_bytes, options.megabytes)
                    }
    for _ in range(options.rounds):
        for size_bytes in BATCH_BYTES:
            for mode in (COPYING, AS_IT_IS):
                with server(mode) as broker:
                    for load, spent in loads(broker, size_bytes, options.megabytes):
                        rates[mode, load, size_bytes].append(spent.rate)
    for load in (PRODUCE, FETCH):
        for size_bytes in BATCH_BYTES:
            before, now = rates[COPYING, load, size_bytes], rates[AS_IT_IS, load, size_bytes]
            name = f"{load.lower()}.{size_bytes // KIBIBYTE}"
            title = f"{load}, batches of {size_bytes // KIBIBYTE} KiB"
            report_rate(
                f"copies.rate.{name}",
                title,
                "MB per CPU second",
                now,
                basis=Basis.CPU,
                peer="with copies",
                peer_values=before,
            )
            counted = [
                [copies[mode, load, size_bytes]]
                for mode in (AS_IT_IS, COPYING)
                if (mode, load, size_bytes) in copies
            ]
            if counted:
                report_cost(
                    f"copies.count.{name}",
                    f"copies of a byte of records, {title}",
                    "copies",
                    counted[0],
                    basis=Basis.SIZE,
                    peer="with copies",
                    peer_values=counted[1],
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
