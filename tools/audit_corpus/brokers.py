"""Small clusters of Apache Kafka whose log directories become situations: one to three nodes, in
KRaft or ZooKeeper mode, with settings that make seconds of load roll, compact and expire.
"""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from kraftsim.cluster.apache_kafka.storage import format_copy
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import CONTROLLER_PORT_DISTANCE, ZOOKEEPER_PORT_DISTANCE
from tests.apache_kafka.class_path import jars_of
from tests.apache_kafka.harness import CLUSTER_ID, ROLES, ApacheKafka
from tests.apache_kafka.zookeeper import ApacheZookeeper

KRAFT: Final = "kraft"
ZOOKEEPER: Final = "zookeeper"
JVM: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx320m")
STOP_PAUSE_SECONDS: Final = 0.2

SMALL: Final[Mapping[str, str]] = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "zookeeper.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "3000",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "700",
    "log.flush.start.offset.checkpoint.interval.ms": "700",
    "log.index.interval.bytes": "1024",
    "log.retention.check.interval.ms": "600",
    "log.initial.task.delay.ms": "600",
    "log.segment.delete.delay.ms": "800",
    "log.cleaner.backoff.ms": "300",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.cleaner.delete.retention.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.max.timeout.ms": "900000",
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "metadata.log.max.snapshot.interval.ms": "4000",
    "num.network.threads": "2",
    "num.io.threads": "3",
    "background.threads": "3",
    "num.recovery.threads.per.data.dir": "1",
}
"""For every release: one that does not know a setting logs a warning."""
LARGE_INDEXES_OFF: Final = {"log.index.size.max.bytes": "65536"}
SMALL_SEGMENTS: Final = {
    "log.segment.bytes": "49152",
    "offsets.topic.segment.bytes": "8192",
    "transaction.state.log.segment.bytes": "8192",
    "metadata.log.segment.min.bytes": "4096",
    "metadata.log.segment.bytes": "16384",
}
"""Of releases before 4.0, which refuses segments below 1 MiB (KIP-1030)."""
SMALL_SEGMENTS_OF_4: Final = {
    "internal.metadata.log.segment.bytes": "16384",
    "log.roll.ms": "2500",
}


def is_of_4(release: str) -> bool:
    """Return whether a release is 4.0 or later."""
    return int(release.partition(".")[0]) >= 4


class CorpusCluster:
    """Nodes of one release, each broker and (in KRaft mode) controller. Use as a context manager.

    `directories` is the number of log directories per node. `workspace` holds one directory per
    node; node 1 is `nodes[0]`.
    """

    def __init__(
        self,
        workspace: Path,
        release: str,
        *,
        mode: str = KRAFT,
        size: int = 1,
        directories: int = 1,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.workspace = workspace
        self.release = release
        self.mode = mode
        self.size = size
        self.directories = directories
        self.settings = dict(settings or {})
        self.port = free_port_range(size, controllers=size)
        self.zookeeper: ApacheZookeeper | None = None
        self.nodes = [self._node(number) for number in range(1, size + 1)]

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(self.address(number) for number in self.numbers)

    @property
    def numbers(self) -> range:
        """The node ids."""
        return range(1, self.size + 1)

    def address(self, number: int) -> str:
        """Return the address of one broker."""
        return f"127.0.0.1:{self.port + number - 1}"

    def data(self, number: int) -> list[Path]:
        """Return the log directories of a node."""
        base = self.workspace / f"node-{number}"
        return [
            base / ("data" if index == 0 else f"data{index + 1}")
            for index in range(self.directories)
        ]

    def __enter__(self) -> "CorpusCluster":
        try:
            if self.mode == ZOOKEEPER:
                (self.workspace / "zookeeper").mkdir()
                self.zookeeper = ApacheZookeeper(self.workspace / "zookeeper")
                self.zookeeper.port = self.port + ZOOKEEPER_PORT_DISTANCE
                self.zookeeper.start()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill everything; the log directories stay."""
        for node in self.nodes:
            node.stop(cleanly=False)
        if self.zookeeper is not None:
            self.zookeeper.stop()

    def start(self, numbers: Iterable[int] | None = None) -> None:
        """Start nodes that are down, by default all, and return when they respond."""
        wanted = [self.nodes[each - 1] for each in numbers or self.numbers]
        wanted = [node for node in wanted if not node.is_running]
        for node in wanted:
            node.launch()
        for node in wanted:
            node.wait()

    def stop(self, numbers: Iterable[int] | None = None) -> None:
        """Stop nodes cleanly, by default all, one after the other, the controllers' leader last.

        A combined node waits for its controller, so the last node of a quorum is stopped while it
        still has a majority: two are signalled together.
        """
        wanted = [self.nodes[each - 1] for each in numbers or self.numbers]
        running = [node for node in wanted if node.is_running]
        for node in running[:-2]:
            node.stop()
            time.sleep(STOP_PAUSE_SECONDS)
        together = running[-2:]
        for node in together:
            assert node._process is not None, "it is running"
            node._process.terminate()
        for node in together:
            node.stop()

    def kill(self, numbers: Iterable[int] | None = None) -> None:
        """Kill nodes with SIGKILL, by default all."""
        for each in numbers or self.numbers:
            self.nodes[each - 1].stop(cleanly=False)

    def log(self, number: int) -> str:
        """Return what a node logged."""
        return (self.workspace / f"node-{number}" / "server.log").read_text(errors="replace")

    def set_properties(self, number: int, changes: Mapping[str, str | None]) -> None:
        """Set properties of a node for its next start; None removes one."""
        file = self.workspace / f"node-{number}" / "server.properties"
        present = dict(line.partition("=")[::2] for line in file.read_text().splitlines() if line)
        present.update({key: value for key, value in changes.items() if value is not None})
        for key, value in changes.items():
            if value is None:
                present.pop(key, None)
        file.write_text("".join(f"{key}={value}\n" for key, value in present.items()))

    def use_release(self, number: int, release: str) -> None:
        """Let a node that is down start as another release the next time."""
        self.nodes[number - 1].release = release
        if is_of_4(release):
            self.set_properties(number, {**dict.fromkeys(SMALL_SEGMENTS), **SMALL_SEGMENTS_OF_4})

    def _node(self, number: int) -> ApacheKafka:
        directory = self.workspace / f"node-{number}"
        directory.mkdir(parents=True)
        data = self.data(number)
        port, controller_port = (
            self.port + number - 1,
            self.port + CONTROLLER_PORT_DISTANCE + number - 1,
        )
        replicas = str(min(3, self.size))
        properties = {
            **SMALL,
            **LARGE_INDEXES_OFF,
            **(SMALL_SEGMENTS_OF_4 if is_of_4(self.release) else SMALL_SEGMENTS),
            "log.dirs": ",".join(map(str, data)),
            "broker.rack": f"rack-{number}",
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": "1",
        }
        if self.mode == ZOOKEEPER:
            properties |= {
                "broker.id": str(number),
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "zookeeper.connect": f"127.0.0.1:{self.port + ZOOKEEPER_PORT_DISTANCE}",
            }
        else:
            voters = ",".join(
                f"{each}@127.0.0.1:{self.port + CONTROLLER_PORT_DISTANCE + each - 1}"
                for each in self.numbers
            )
            properties |= {
                "process.roles": ROLES,
                "node.id": str(number),
                "listeners": f"PLAINTEXT://127.0.0.1:{port},"
                f"CONTROLLER://127.0.0.1:{controller_port}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": voters,
            }
            for index, each in enumerate(data):
                format_directory(self.release, each, number, is_first=index == 0)
        properties |= self.settings
        (directory / "server.properties").write_text(
            "".join(f"{key}={value}\n" for key, value in properties.items())
        )
        return ApacheKafka(
            release=self.release,
            settings={"process.roles": "broker"},
            jvm=JVM,
            port=port,
            controller_port=controller_port,
            directory=directory,
        )


def format_directory(release: str, data: Path, number: int, *, is_first: bool = True) -> None:
    """Format a log directory of a node in KRaft mode; only the first has the metadata log."""
    format_copy(
        jars_of(release),
        data,
        node_id=number,
        cluster_id=CLUSTER_ID,
        version="",
        is_controller=is_first,
    )
