"""Clusters to migrate from ZooKeeper to KRaft, kraftsim and Apache Kafka 3.9.1: nodes with property
files that change between starts.

Both kinds get the same properties, except for how a new controller gets the cluster id. ZooKeeper
is ours or Apache ZooKeeper.
"""

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from kraftsim.cluster.ports import free_port_range
from tools.bench.subjects import APACHE_KAFKA

APACHE_RELEASE: Final = "3.9.1"
BROKER_JVM: Final = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Xms256m", "-Xmx512m")
CONTROLLER_JVM: Final = ("-server", "-XX:+UseSerialGC", "-Xms128m", "-Xmx256m")
FIRST_CONTROLLER: Final = 3001
STOP_SECONDS: Final = 120.0
START_SECONDS: Final = 600.0
LISTENERS: Final = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
}
MIGRATES: Final = {"zookeeper.metadata.migration.enable": "true"}
QUESTION: Final = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
"""ApiVersions version 0."""


class Node:
    """One process: its properties, where it listens, and the command that runs it."""

    def __init__(
        self,
        directory: Path,
        port: int,
        properties: Mapping[str, str],
        command: Callable[[Path], list[str]],
    ) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.port = port
        self.properties = {**properties, "log.dirs": str(directory / "data")}
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        """Start the process."""
        file = self.directory / "node.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        with open(self.directory / "node.log", "ab") as log:
            self._process = subprocess.Popen(
                self._command(file),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Return when it responds."""
        give_up_at = time.monotonic() + START_SECONDS
        while not answers(self.port):
            words = (self.directory / "node.log").read_text(errors="replace")[-2000:]
            assert self._process is not None and self._process.poll() is None, (
                f"the process ended:\n{words}"
            )
            assert time.monotonic() < give_up_at, f"it does not respond:\n{words}"
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop it with SIGTERM, or kill it if that takes long."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


class MigratedCluster:
    """Brokers and controllers by number; the controllers are configured and not started yet."""

    def __init__(
        self,
        directory: Path,
        zookeeper_port: int,
        *,
        is_ours: bool,
        brokers: int,
        controllers: int,
        settings: Mapping[str, str],
    ) -> None:
        self.zookeeper_port = zookeeper_port
        self._is_ours = is_ours
        self._directory = directory
        first = free_port_range(brokers, controllers=controllers)
        self._controller_ports = [first + 100 + number for number in range(controllers)]
        self.brokers = [
            self._broker(number, first + number - 1, brokers, settings)
            for number in range(1, brokers + 1)
        ]
        self.controllers: list[Node] = []
        self._cluster_id: dict[str, str] = {}
        """The cluster id setting of kraftsim nodes; Apache Kafka's nodes read it from their
        directories.
        """

    @property
    def bootstrap(self) -> str:
        """The bootstrap addresses."""
        return ",".join(f"127.0.0.1:{node.port}" for node in self.brokers)

    @property
    def voters(self) -> str:
        """controller.quorum.voters."""
        return ",".join(
            f"{FIRST_CONTROLLER + place}@127.0.0.1:{port}"
            for place, port in enumerate(self._controller_ports)
        )

    def start_controllers(self, cluster_id: str) -> None:
        """Start the controllers with migration enabled, and return when all respond."""
        self._cluster_id = {"kraftsim.cluster.id": cluster_id} if self._is_ours else {}
        for place, port in enumerate(self._controller_ports):
            properties = {
                "process.roles": "controller",
                "node.id": str(FIRST_CONTROLLER + place),
                "listeners": f"CONTROLLER://127.0.0.1:{port}",
                "controller.quorum.voters": self.voters,
                **LISTENERS,
                "zookeeper.connect": f"127.0.0.1:{self.zookeeper_port}",
                **MIGRATES,
                **self._cluster_id,
            }
            node = Node(
                self._directory / f"controller-{place + 1}",
                port,
                properties,
                self._command(CONTROLLER_JVM),
            )
            if not self._is_ours:
                _format(node, cluster_id)
            self.controllers.append(node)
        for node in self.controllers:
            node.launch()
        for node in self.controllers:
            node.wait()

    def let_migrate(self, node: Node) -> None:
        """Configure a broker for migration."""
        node.properties |= {**LISTENERS, **MIGRATES, "controller.quorum.voters": self.voters}

    def let_be_kraft(self, node: Node) -> None:
        """Configure a broker as a KRaft broker."""
        kept = {
            key: value
            for key, value in node.properties.items()
            if not key.startswith(("zookeeper.", "broker.id"))
        }
        node.properties = {
            **kept,
            **self._cluster_id,
            "process.roles": "broker",
            "node.id": node.properties["broker.id"],
        }

    def let_end(self, node: Node) -> None:
        """Remove the migration settings of a controller."""
        node.properties = {
            key: value for key, value in node.properties.items() if not key.startswith("zookeeper.")
        }

    def stop(self) -> None:
        """Stop all nodes."""
        for node in (*self.brokers, *self.controllers):
            node.stop()

    def _broker(self, number: int, port: int, brokers: int, settings: Mapping[str, str]) -> Node:
        properties = {
            "broker.id": str(number),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "zookeeper.connect": f"127.0.0.1:{self.zookeeper_port}",
            "offsets.topic.replication.factor": str(brokers),
            "group.initial.rebalance.delay.ms": "0",
            **settings,
        }
        return Node(
            self._directory / f"broker-{number}", port, properties, self._command(BROKER_JVM)
        )

    def _command(self, jvm: tuple[str, ...]) -> Callable[[Path], list[str]]:
        if self._is_ours:
            return lambda file: [sys.executable, "-m", "kraftsim", "node", str(file)]
        from tests.apache_kafka.harness import java_command

        return lambda file: java_command(APACHE_RELEASE, "kafka.Kafka", str(file), jvm=jvm)


@contextmanager
def migrated_cluster(
    name: str, *, brokers: int, controllers: int, settings: Mapping[str, str]
) -> Iterator[MigratedCluster]:
    """Run ZooKeeper and the brokers of one kind of cluster."""
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="kraftsim-bench-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        port = stack.enter_context(
            _their_zookeeper() if name == APACHE_KAFKA else _our_zookeeper(directory / "zookeeper")
        )
        nodes = MigratedCluster(
            directory,
            port,
            is_ours=name != APACHE_KAFKA,
            brokers=brokers,
            controllers=controllers,
            settings=settings,
        )
        stack.callback(nodes.stop)
        for node in nodes.brokers:
            node.launch()
        for node in nodes.brokers:
            node.wait()
        yield nodes


@contextmanager
def _our_zookeeper(directory: Path) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    directory.mkdir()
    settings = [
        f"--set={each}"
        for each in (f"clientPort={port}", "clientPortAddress=127.0.0.1", "maxClientCnxns=0")
    ]
    command = [sys.executable, "-m", "kraftsim", "zookeeper", "--data", str(directory), *settings]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        give_up_at = time.monotonic() + START_SECONDS
        while not _is_zookeeper(port):
            assert process.poll() is None and time.monotonic() < give_up_at, (
                "kraftsim's ZooKeeper does not start"
            )
            time.sleep(0.05)
        try:
            yield port
        finally:
            process.terminate()


@contextmanager
def _their_zookeeper() -> Iterator[int]:
    from tests.apache_kafka.zookeeper import ApacheZookeeper

    with ApacheZookeeper() as server:
        server.start()
        yield server.port


def _is_zookeeper(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"srvr")
            return b"Zxid" in connection.recv(1 << 16)
    except OSError:
        return False


def _format(node: Node, cluster_id: str) -> None:
    from tests.apache_kafka.harness import _formatted

    data = node.directory / "data"
    shutil.copytree(_formatted(APACHE_RELEASE), data)
    (data / "meta.properties").write_text(
        f"version=1\ncluster.id={cluster_id}\nnode.id={node.properties['node.id']}\n"
    )


def answers(port: int) -> bool:
    """Return whether a node responds to ApiVersions there."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(QUESTION)
            return len(connection.recv(4)) == 4
    except OSError:
        return False
