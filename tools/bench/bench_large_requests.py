"""Measures the CPU seconds of requests with 10,000 and 20,000 entries, one for each array of each
API, and the wait of another client.

Twice as many entries may cost twice as much and not four times. CPU seconds are those of all nodes,
until 0.2 s after the response. The first run is without an authorizer, the second one with it, as a
client without permissions. The other client sends ApiVersions every few milliseconds, to the broker
and to the controller. The longest of its waits is printed, the 99th percentile of all, and the most
CPU time that the node used during one of them: only the former includes the load of other processes
on the machine.

python -m tools.bench.bench_large_requests [--count 10000] [--release 3.9] [--only WORDS]
                                           [--apache-kafka 3.9.1]
"""

import argparse
import asyncio
import math
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.spec import CONTROLLER_PORT_DISTANCE, ClusterSpec
from kraftsim.conformance.peer import Peer, PeerClosed, PeerSilent, request_bytes
from protocol.api_keys import ApiKey
from protocol.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k36_sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from tools.bench.large_requests import PARTITIONS, TOPIC, LargeRequest, every_array
from tools.bench.result import Basis, report_cost

COUNT = 10_000
ANSWER_SECONDS = 120.0
PING_SECONDS = 0.004
SETTLE_SECONDS = 0.2
CPU_SECONDS_MIN = 0.005
"""Below this the CPU time of idle nodes dominates, and no ratio is computed."""
STALL_MS = 100.0
CLOSED = -1.0
JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" '
    'password="admin" user_admin="admin" user_bob="bob";'
)
SECURITY = {
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT"
    ),
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": JAAS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
}
LEFT_OUT = {
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.CONTROLLER_REGISTRATION,
}
"""APIs that would change the client's identity or the members of the cluster."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A cluster to measure: the address for clients without permissions, the one for all others,
    and its controller.
    """

    endpoint: str
    plain: str
    controller: str
    is_secured: bool
    pids: tuple[int, ...]
    """The process ids of its nodes: the controller's first, the broker's last."""

    def cpu_seconds(self) -> float:
        """Return the CPU time of the nodes so far."""
        return sum(map(node_cpu_ms, self.pids)) / 1000


@dataclass(slots=True)
class Waits:
    """How long another client waited, in milliseconds: written by its thread, cleared by the
    measurement.
    """

    found: list[tuple[float, float]] = field(default_factory=list)
    """(wait, CPU time of the node meanwhile)."""

    def taken(self) -> list[tuple[float, float]]:
        """Return all waits since the last call, and clear them."""
        found, self.found = self.found, []
        return found


def p99(values: Sequence[float]) -> float:
    """Return the 99th percentile."""
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * 0.99) - 1, 0)] if ordered else 0.0


def node_cpu_ms(pid: int) -> float:
    """Return the CPU time of all threads of a node so far, which Linux counts in nanoseconds."""
    used_ns = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it has ended
            used_ns += int((thread / "schedstat").read_text().split()[0])
    return used_ns / 1e6


@contextmanager
def watching(address: str, pid: int) -> Iterator[Waits]:
    """Send requests to a node all the time, from a thread."""
    waits, is_over = Waits(), threading.Event()

    def ask() -> None:
        with Peer.at(address, ANSWER_SECONDS) as peer:
            while not is_over.wait(PING_SECONDS):
                asked, used = time.perf_counter(), node_cpu_ms(pid)
                peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
                waits.found.append(((time.perf_counter() - asked) * 1000, node_cpu_ms(pid) - used))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield waits
    finally:
        is_over.set()
        thread.join()


@contextmanager
def ours(release: str, *, secured: bool) -> Iterator[Subject]:
    """Run one broker and one controller, with or without an authorizer."""
    root = Path(tempfile.mkdtemp(prefix="kraftsim-bench-"))
    port = free_port_range(2)
    plain, endpoint, controller = (
        f"127.0.0.1:{each}" for each in (port, port + 1, port + CONTROLLER_PORT_DISTANCE)
    )
    own = {"broker-1": {"listeners": f"PLAINTEXT://{plain},SASL://{endpoint}"}} if secured else {}
    spec = ClusterSpec(
        brokers=1,
        release=release,
        port=port,
        settings=SECURITY if secured else {},
        node_settings=own,
    )
    nodes = ProcessCluster(spec, RunDirectory(root))
    asyncio.run(nodes.start())
    try:
        pids = tuple(
            nodes.pid(name) for name in sorted(nodes.nodes, reverse=True)
        )  # the controller, then the broker
        yield Subject(endpoint if secured else plain, plain, controller, secured, pids)
    finally:
        asyncio.run(nodes.stop())
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def theirs(release: str, *, secured: bool) -> Iterator[Subject]:
    """Run one node of Apache Kafka."""
    from tests.apache_kafka.harness import SERVER_JVM, ApacheKafka

    port = free_port_range(4)
    plain, endpoint, controller = (f"127.0.0.1:{port + index}" for index in range(3))
    listeners = {
        "listeners": f"PLAINTEXT://{plain},SASL://{endpoint},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{plain},SASL://{endpoint}",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.quorum.voters": f"1@{controller}",
        **SECURITY,
    }
    with ApacheKafka(
        release, listeners if secured else {}, SERVER_JVM, port=port, controller_port=port + 2
    ) as node:
        yield Subject(
            endpoint if secured else node.bootstrap,
            plain if secured else node.bootstrap,
            controller,
            secured,
            (node.pid,),
        )


def connected(subject: Subject, address: str) -> Peer:
    """Connect, and authenticate where required."""
    peer = Peer.at(address, ANSWER_SECONDS)
    if subject.is_secured and address == subject.endpoint:
        peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1, SaslHandshakeResponse)
        assert not peer.ask(
            SaslAuthenticateRequest(auth_bytes=b"\0bob\0bob"), 2, SaslAuthenticateResponse
        ).error_code, "bob is authenticated"
    return peer


def served(subject: Subject, address: str) -> dict[ApiKey, int]:
    """Return the latest version of each API that a node supports."""
    with connected(subject, address) as peer:
        answer = peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
    return {
        ApiKey(row.api_key): row.max_version
        for row in answer.api_keys
        if row.api_key in set(ApiKey)
    }


def asked(subject: Subject, only: str) -> Iterator[tuple[str, LargeRequest]]:
    """Return each request and its destination: the broker, or the controller for APIs that brokers
    do not support.
    """
    at_broker = served(subject, subject.endpoint)
    at_controller = {} if subject.is_secured else served(subject, subject.controller)
    for address, versions in (
        (subject.endpoint, at_broker),
        (
            subject.controller,
            {key: at_controller[key] for key in at_controller if key not in at_broker},
        ),
    ):
        for key, version in sorted(versions.items()):
            for request in () if key in LEFT_OUT else every_array(key, version):
                if only in request.label:
                    yield address, request


def seconds_of(subject: Subject, address: str, frame: bytes) -> float:
    """Return the CPU time of the request; CLOSED if the node closed the connection instead."""
    with connected(subject, address) as peer:
        peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
        began = subject.cpu_seconds()
        peer.send_bytes(frame)
        try:
            peer.receive_frame()
        except (PeerClosed, PeerSilent):
            return CLOSED
        time.sleep(SETTLE_SECONDS)
        return subject.cpu_seconds() - began


def measure(subject: Subject, count: int, only: str, secured: str) -> None:
    """Print one line for each request, and report the longest waits. `secured`: on or off."""
    with Peer.at(subject.plain) as peer:
        topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
        peer.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5, CreateTopicsResponse)
    time.sleep(1)
    rows: list[tuple[float, float]] = []
    every_wait: list[float] = []
    with (
        watching(subject.plain, subject.pids[-1]) as at_broker,
        watching(subject.controller, subject.pids[0]) as at_controller,
    ):
        for address, request in asked(subject, only):
            seconds: list[float] = []
            waits: list[tuple[float, float]] = []
            for entries in (count // 10, count, 2 * count):
                frame = request_bytes(
                    request.of(entries), request.version, 7
                )  # while it is built, the threads of the other client are blocked
                at_broker.taken(), at_controller.taken()
                seconds.append(seconds_of(subject, address, frame))
                pairs = [*at_broker.taken(), *at_controller.taken()]
                every_wait += [wait for wait, _ in pairs]
                waits.append(
                    (
                        max((wait for wait, _ in pairs), default=0.0),
                        max((cpu for _, cpu in pairs), default=0.0),
                    )
                )
            ratio = seconds[2] / max(seconds[1], CPU_SECONDS_MIN)
            rows.append(waits[2])
            closed = " closed" if CLOSED in seconds else ""
            cost = f"{seconds[1]:7.3f} s {seconds[2]:7.3f} s  x{ratio:4.1f}"
            waited = (
                f"{waits[1][0]:7.0f} ms {waits[2][0]:7.0f} ms  {waits[1][1]:4.0f} ms "
                f"{waits[2][1]:4.0f} ms"
            )
            print(f"{request.label:84} {cost}  {waited}{closed}", flush=True)
    slow, busy = (sum(row[index] > STALL_MS for row in rows) for index in range(2))
    print(
        f"{len(rows)} requests of {2 * count} entries: {slow} let another client wait longer "
        f"than {STALL_MS:.0f} ms, {busy} for so much CPU time"
    )
    what = f"requests of {2 * count} entries, authorizer {secured}"
    waits_ms, cpu_ms = zip(*rows, strict=True)
    title = f"longest wait of another client, {what}"
    report_cost(f"large_requests.wait.{secured}", title, "ms", [max(waits_ms)])
    title = f"99th percentile of such waits, {what}"
    report_cost(f"large_requests.wait_p99.{secured}", title, "ms", [p99(every_wait)])
    title = f"most CPU time of the node in one wait, {what}"
    report_cost(f"large_requests.cpu.{secured}", title, "ms", [max(cpu_ms)], basis=Basis.CPU)


def main() -> int:
    """Measure both kinds of cluster."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--release", default="3.9")
    parser.add_argument("--only", default="")
    parser.add_argument("--authorizer", choices=("both", "on", "off"), default="both")
    parser.add_argument("--apache-kafka", default="")
    options = parser.parse_args()
    for secured in {"both": (False, True), "on": (True,), "off": (False,)}[options.authorizer]:
        node = (
            theirs(options.apache_kafka, secured=secured)
            if options.apache_kafka
            else ours(options.release, secured=secured)
        )
        with node as subject:
            print(
                "-- "
                f"{'Apache Kafka ' + options.apache_kafka if options.apache_kafka else 'kraftsim'}"
                f", authorizer {'on' if secured else 'off'}"
            )
            print(
                f"{'request':84} {options.count:9} {2 * options.count:9}  ratio  longest wait of "
                "another client, most CPU time in one"
            )
            measure(subject, options.count, options.only, "on" if secured else "off")
    return 0


if __name__ == "__main__":
    sys.exit(main())
