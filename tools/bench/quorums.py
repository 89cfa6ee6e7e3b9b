"""Quorums of three controllers to measure, kraftsim's and Apache Kafka's: processes with default
timers, killed and restarted one at a time.

There is no broker: `QuorumClient` registers a fake one, and requests producer ids from the active
controller as a broker does.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from typing import Protocol

import psutil

from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec, properties_text
from kraftsim.conformance.peer import Peer, PeerClosed, PeerSilent
from protocol.errors import ErrorCode
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.k55_describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
)
from protocol.messages.k62_broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from protocol.messages.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from tools.bench.subjects import APACHE_KAFKA, KRAFTSIM

VOTERS = 3
BROKER_ID = 900
REGISTRATION_VERSION = 3
HIGHEST_LEVEL = 25
"""A metadata.version above that of any cluster here."""
QUORUM_VERSION = 1
RETRY_SECONDS = 0.002
GIVE_UP_SECONDS = 60.0
MEBIBYTE = 1 << 20
METADATA_LOG = DescribeQuorumTopic(
    topic_name="__cluster_metadata", partitions=[DescribeQuorumPartition(partition_index=0)]
)
GONE = (OSError, PeerClosed, PeerSilent)
"""The exceptions of a request to a controller that is down or going down."""


class ControllerProcess(Protocol):
    """One controller; it can be started again after a kill: same directory, same port."""

    @property
    def controller(self) -> str:
        """Its address, HOST:PORT."""

    @property
    def pid(self) -> int:
        """Its process."""

    def start(self) -> None:
        """Start it and return when it responds."""

    def stop(self, *, cleanly: bool = True) -> None:
        """End it by SIGTERM or SIGKILL, and reap it."""

    def remove(self) -> None:
        """Kill it and delete its data."""


class OurNode:
    """One node of a spec as its own process."""

    def __init__(self, spec: ClusterSpec, name: str, directory: Path) -> None:
        node = spec.node(name)
        self.controller = f"{node.host}:{node.port}"
        self.directory = directory / name
        self.directory.mkdir(parents=True)
        self._name = name
        self._properties = self.directory / "node.properties"
        self._process: subprocess.Popen[bytes] | None = None
        self.configure(spec)

    def configure(self, spec: ClusterSpec) -> None:
        """Use a new spec from the next start on."""
        places = {
            "log.dirs": str(self.directory / "data"),
            "kraftsim.events.dir": str(self.directory / "events"),
        }
        self._properties.write_text(properties_text({**spec.node(self._name).properties, **places}))

    def forget(self) -> None:
        """Delete its data, so that the next start has an empty disk."""
        rmtree(self.directory / "data")

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None, "the node was started"
        return self._process.pid

    def start(self) -> None:
        """Start it and return when it responds."""
        with open(self.directory / "node.log", "ab") as log:
            command = [sys.executable, "-m", "kraftsim", "node", str(self._properties)]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        give_up_at = time.monotonic() + GIVE_UP_SECONDS
        while not answers(self.controller):
            assert self._process.poll() is None, (self.directory / "node.log").read_text()[-2000:]
            assert time.monotonic() < give_up_at, f"{self.controller} does not answer"
            time.sleep(0.01)

    def stop(self, *, cleanly: bool = True) -> None:
        """End it."""
        if self._process is not None:
            (self._process.terminate if cleanly else self._process.kill)()
            self._process.wait(GIVE_UP_SECONDS)
            self._process = None

    def remove(self) -> None:
        """Kill it and delete its data."""
        self.stop(cleanly=False)
        rmtree(self.directory)


class Quorum:
    """Three running controllers."""

    def __init__(self, controllers: Sequence[ControllerProcess]) -> None:
        self.controllers = controllers

    @property
    def addresses(self) -> list[str]:
        """The address of each controller."""
        return [each.controller for each in self.controllers]

    def memory_mebibytes(self) -> float:
        """Return the resident memory of all of them."""
        return sum(resident_mebibytes(each.pid) for each in self.controllers)


@contextmanager
def quorum(name: str) -> Iterator[Quorum]:
    """Run a quorum of one kind, and delete its data at the end."""
    root = Path(tempfile.mkdtemp(prefix="kraftsim-bench-"))
    controllers = _ours(root) if name == KRAFTSIM else their_nodes(brokers=0)
    try:
        start_all(controllers)
        yield Quorum(controllers)
    finally:
        for each in controllers:
            each.remove()
        rmtree(root, ignore_errors=True)


def start_all(nodes: Sequence[ControllerProcess]) -> None:
    """Start all at the same time and return when all respond."""
    with ThreadPoolExecutor(len(nodes)) as pool:
        for started in [pool.submit(each.start) for each in nodes]:
            started.result()


def their_nodes(*, brokers: int) -> "list[ControllerProcess]":
    """Return nodes of Apache Kafka that are not started: controllers 101 to 103, brokers from 1 on,
    with the flags of its own start script.
    """
    from tests.apache_kafka.class_path import class_path
    from tests.apache_kafka.harness import SERVER_JVM, ApacheKafka

    class_path("3.9.1")
    first = free_port_range(1, controllers=VOTERS)
    ports = {101 + index: first + 100 + index for index in range(VOTERS)}
    voters = {
        "controller.quorum.voters": ",".join(
            f"{node_id}@127.0.0.1:{port}" for node_id, port in ports.items()
        )
    }
    nodes: list[ControllerProcess] = [
        ApacheKafka(
            "3.9.1",
            {"process.roles": "controller", "node.id": str(node_id), **voters},
            SERVER_JVM,
            controller_port=port,
        )
        for node_id, port in ports.items()
    ]
    for node_id in range(1, 1 + brokers):
        nodes.append(
            ApacheKafka(
                "3.9.1", {"process.roles": "broker", "node.id": str(node_id), **voters}, SERVER_JVM
            )
        )
    return nodes


def _ours(root: Path) -> "list[ControllerProcess]":
    spec = ClusterSpec(
        controllers=VOTERS,
        brokers=1,
        port=free_port_range(1, controllers=VOTERS),
        seed=fresh_seed(),
    )
    return [OurNode(spec, name, root) for name in spec.controller_names]


class QuorumClient:
    """Sends requests to the active controller, and to all controllers while none is active."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = list(addresses)
        self._peers: dict[str, Peer] = {}
        self.broker_epoch = -1

    def close(self) -> None:
        """Close the connections."""
        for peer in self._peers.values():
            peer.close()

    def register(self, cluster_id: str = ClusterSpec().cluster_id) -> None:
        """Register a fake broker; it stays fenced."""
        request = BrokerRegistrationRequest(
            broker_id=BROKER_ID,
            cluster_id=cluster_id,
            incarnation_id=b"one incarnation ",
            listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=9, security_protocol=0)],
            features=[
                Feature(
                    name="metadata.version",
                    min_supported_version=1,
                    max_supported_version=HIGHEST_LEVEL,
                )
            ],
            log_dirs=[b"a log directory "],
        )

        def ask(peer: Peer) -> int:
            answer = peer.ask(request, REGISTRATION_VERSION, BrokerRegistrationResponse)
            self.broker_epoch = answer.broker_epoch
            return answer.error_code

        self._ask_until_answered(ask)

    def allocate(self) -> int:
        """Allocate a block of producer ids; return the index of the controller that returned it."""
        request = AllocateProducerIdsRequest(broker_id=BROKER_ID, broker_epoch=self.broker_epoch)
        return self._ask_until_answered(
            lambda peer: peer.ask(request, 0, AllocateProducerIdsResponse).error_code
        )

    def wait_until_level(self, leader: int) -> None:
        """Return when every voter has what was committed at the call, so that any one of them may
        fail.
        """
        target: int | None = None
        give_up_at = time.monotonic() + GIVE_UP_SECONDS
        while True:
            assert time.monotonic() < give_up_at, "the voters do not catch up"
            with suppress(*GONE):
                answer = self._peer(self._addresses[leader]).ask(
                    DescribeQuorumRequest(topics=[METADATA_LOG]),
                    QUORUM_VERSION,
                    DescribeQuorumResponse,
                )
                found = answer.topics[0].partitions[0]
                if found.error_code == ErrorCode.NONE and found.high_watermark > 0:
                    target = found.high_watermark if target is None else target
                    if all(voter.log_end_offset >= target for voter in found.current_voters):
                        return
            time.sleep(0.01)

    def _ask_until_answered(self, ask: "Asking") -> int:
        give_up_at = time.monotonic() + GIVE_UP_SECONDS
        last: object = None
        while time.monotonic() < give_up_at:
            for number, address in enumerate(self._addresses):
                try:
                    last = ErrorCode(ask(self._peer(address)))
                except GONE as trouble:
                    last = trouble
                    self._forget(address)
                if last is ErrorCode.NONE:
                    return number
            time.sleep(RETRY_SECONDS)
        raise AssertionError(
            f"no controller answered within {GIVE_UP_SECONDS:g} s; the last one: {last}"
        )

    def _peer(self, address: str) -> Peer:
        if address not in self._peers:
            self._peers[address] = Peer.at(address)
        return self._peers[address]

    def _forget(self, address: str) -> None:
        peer = self._peers.pop(address, None)
        if peer is not None:
            peer.close()


class Asking(Protocol):
    """Sends one request to one controller; returns the error code."""

    def __call__(self, peer: Peer, /) -> int: ...


def answers(address: str) -> bool:
    """Return whether a node responds to ApiVersions."""
    try:
        with Peer.at(address, timeout_seconds=5) as peer:
            peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
    except GONE:
        return False
    return True


def own_mebibytes(pid: int) -> float:
    """Return the proportional set size (PSS) of a process: shared pages are divided among the
    processes that share them.
    """
    return float(psutil.Process(pid).memory_full_info().pss) / MEBIBYTE


def private_mebibytes(pid: int) -> float:
    """Return the unique set size (USS) of a process: the pages that no other process shares."""
    return float(psutil.Process(pid).memory_full_info().uss) / MEBIBYTE


def fresh_seed() -> int:
    """Return a new seed: it determines the election timeouts, and one pair of them must not
    determine all rounds.
    """
    return time.time_ns() // 1000 % (1 << 31)


def resident_mebibytes(pid: int) -> float:
    """Return the resident memory of a process."""
    return float(psutil.Process(pid).memory_info().rss) / MEBIBYTE


__all__ = [
    "APACHE_KAFKA",
    "KRAFTSIM",
    "OurNode",
    "Quorum",
    "QuorumClient",
    "fresh_seed",
    "own_mebibytes",
    "private_mebibytes",
    "quorum",
    "resident_mebibytes",
    "their_nodes",
]
