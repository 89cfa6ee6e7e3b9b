"""A thousand connections, clients that read slowly or never, partial requests, decompression bombs:
memory is bounded, other clients are served.

Source: SocketServer (one request at a time per connection, no read before the response is sent),
queued.max.requests; KIP-219.
"""

import gzip
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack

import psutil
import pytest
from crc32c import crc32c

from kraftsim.cluster.processes import ProcessCluster
from kraftsim.conformance.peer import Peer, framed
from protocol.errors import ErrorCode
from protocol.records.batches import (
    BEFORE_CRC,
    COVERED_HEADER,
    CRC,
    HEADER_SIZE_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    build_batch,
)
from protocol.records.record import Compression, Record
from tests.cluster.broker_client import BrokerClient, broker_client
from tests.cluster.running import QUICK_SESSIONS, address_of, running_processes

MEGABYTE = 1 << 20
CONNECTIONS = 1000
SETTINGS = {**QUICK_SESSIONS, "socket.listen.backlog.size": str(CONNECTIONS)}
"""The default listen backlog is 50; a client beyond it retries its SYN after a second."""
TOPIC = "crowded"
LATENCY_SECONDS = 1.0
"""The maximum response time of a well-behaved client; on an idle machine it is some
milliseconds.
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with running_processes(tmp_path_factory.mktemp("crowds") / "run", settings=SETTINGS) as running:
        with broker_client(running.bootstrap) as broker:
            broker.create_topic(TOPIC)
            for _ in range(40):
                answer = broker.produce(
                    TOPIC, build_batch([Record(timestamp=1, key=b"k", value=bytes(100_000))])
                )
                assert answer.error_code == ErrorCode.NONE
        yield running


def open_socket(cluster: ProcessCluster) -> socket.socket:
    host, _, port = address_of(cluster, "broker-1").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def api_versions(correlation_id: int) -> bytes:
    return framed(struct.pack(">hhih", 18, 0, correlation_id, -1))


def fetch(correlation_id: int) -> bytes:
    """Fetch four megabytes, version 4."""
    name = TOPIC.encode()
    partitions = struct.pack(">iiqi", 1, 0, 0, 4 * MEGABYTE)
    topics = struct.pack(">ih", 1, len(name)) + name + partitions
    return framed(
        struct.pack(">hhih", 1, 4, correlation_id, -1)
        + struct.pack(">iiiib", -1, 0, 1, 4 * MEGABYTE, 0)
        + topics
    )


def memory(cluster: ProcessCluster) -> int:
    return psutil.Process(cluster.pid("broker-1")).memory_info().rss


def served(broker: BrokerClient) -> float:
    """Produce and send Metadata; return the duration of the slower one."""
    slowest = 0.0
    for work in (
        lambda: broker.produce(TOPIC, build_batch([Record(timestamp=1, key=b"k", value=b"v")])),
        lambda: broker.metadata(TOPIC),
    ):
        began = time.monotonic()
        work()
        slowest = max(slowest, time.monotonic() - began)
    return slowest


def test_a_thousand_connections_are_all_answered(cluster: ProcessCluster) -> None:
    """All at once, and each again; their memory is released."""
    before = memory(cluster)
    with ExitStack() as crowd, broker_client(cluster.bootstrap) as broker:
        sockets = [crowd.enter_context(open_socket(cluster)) for _ in range(CONNECTIONS)]
        for turn in (1, 2):
            for each in sockets:
                each.sendall(api_versions(turn))
            for each in sockets:
                (size,) = struct.unpack(">i", each.recv(4, socket.MSG_WAITALL))
                assert struct.unpack_from(">ih", each.recv(size, socket.MSG_WAITALL)) == (turn, 0)
        assert served(broker) < LATENCY_SECONDS
        assert memory(cluster) - before < 64 * MEGABYTE


def test_clients_that_never_read_or_send_half_a_request_cost_little(
    cluster: ProcessCluster,
) -> None:
    """Three hundred fetch gigabytes and read nothing, three hundred stop in the middle of a
    request, one reads very slowly.
    """
    before = memory(cluster)
    with ExitStack() as crowd, broker_client(cluster.bootstrap) as broker:
        greedy = [crowd.enter_context(open_socket(cluster)) for _ in range(300)]
        for each in greedy:
            each.sendall(b"".join(fetch(number) for number in range(50)))
        for _ in range(300):
            halves = crowd.enter_context(open_socket(cluster))
            halves.sendall(struct.pack(">i", 90 * MEGABYTE) + bytes(200))
        slow = crowd.enter_context(open_socket(cluster))
        slow.sendall(fetch(0))
        slowest = 0.0
        for _ in range(20):
            slowest = max(slowest, served(broker))
            assert slow.recv(2000)
        assert slowest < LATENCY_SECONDS
        assert memory(cluster) - before < 300 * MEGABYTE, (
            "for each client that does not read, only one response is built"
        )
        reads, _, _ = select.select(greedy, [], [], 0)
        assert len(reads) > 200, "they can read if they want to"
    with broker_client(cluster.bootstrap) as broker:
        assert served(broker) < LATENCY_SECONDS


def compressed_zeros(plain_bytes: int) -> bytes:
    """A valid batch with one record of zeros only, whose compressed size is a thousandth."""
    body = gzip.compress(bytes(plain_bytes), 5)
    covered = COVERED_HEADER.pack(Compression.GZIP, 0, 1, 1, -1, -1, -1, 1)
    before = BEFORE_CRC.pack(0, HEADER_SIZE_BYTES - LENGTH_OVERHEAD_BYTES + len(body), -1, MAGIC)
    return before + CRC.pack(crc32c(body, crc32c(covered))) + covered + body


def test_decompression_bombs_are_refused_and_memory_stays_bounded(cluster: ProcessCluster) -> None:
    """Two batches of 200 KB that decompress to 200 MB each: the error of Apache Kafka, nothing in
    the log, little memory.
    """
    before = memory(cluster)
    data = compressed_zeros(200 * MEGABYTE)
    assert len(data) < MEGABYTE
    with (
        broker_client(cluster.bootstrap) as broker,
        Peer.at(address_of(cluster, "broker-1")) as other,
    ):
        for _ in range(2):
            assert broker.produce(TOPIC, data).error_code == ErrorCode.INVALID_RECORD
        assert memory(cluster) - before < 200 * MEGABYTE
        assert served(broker) < LATENCY_SECONDS
        end = (
            BrokerClient(other)
            .produce(TOPIC, build_batch([Record(timestamp=1, key=b"k", value=b"v")]))
            .base_offset
        )
        assert (
            BrokerClient(other)
            .produce(TOPIC, build_batch([Record(timestamp=1, key=b"k", value=b"v")]))
            .base_offset
            == end + 1
        )
