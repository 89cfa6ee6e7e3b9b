"""Measures creating 100,000 partitions, and the start time and memory of a controller and a broker
with them.

    python -m tools.bench.bench_partitions [--partitions 100000]

One controller, and three fake brokers: they register, send one heartbeat, and have a session
timeout of an hour, so that all partitions have a leader and three replicas without any broker that
stores them. Created by CreateTopics with 1,000 partitions each. A start is measured from the start
of the process to the node's report that it is ready: a controller is active and has replayed
everything, a broker has caught up and is unfenced. The first rows are the same with empty metadata.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree

from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.peer import Peer
from kraftsim.server.events import NodeReady
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import (
    BROKER_DEFAULT,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k62_broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tools.bench.quorums import (
    GIVE_UP_SECONDS,
    HIGHEST_LEVEL,
    REGISTRATION_VERSION,
    OurNode,
    resident_mebibytes,
)
from tools.bench.result import Basis, report_cost

CONTROLLER, BROKER = "controller-101", "broker-1"
NOBODIES = (11, 12, 13)
PARTITIONS_PER_TOPIC = 1000
CAUGHT_UP = 1 << 40
HOUR_MS = 3_600_000
SETTINGS = {"broker.session.timeout.ms": str(HOUR_MS)}
SNAPSHOT_BYTES = 100
"""Log bytes per partition between snapshots: less than a partition takes, and more than half of it,
so that exactly one snapshot is due.
"""
READY = f'"kind":"{NodeReady.__name__}"'


class MeasuredNode(OurNode):
    """A node whose start is measured until it reports that it is ready."""

    def ready_seconds(self) -> float:
        """Start it, and return how long it took."""
        before = self._times_ready()
        began = time.perf_counter()
        self.start()
        wait_until(lambda: self._times_ready() > before, "a node is ready")
        return time.perf_counter() - began

    def _times_ready(self) -> int:
        return sum(
            file.read_text().count(READY) for file in (self.directory / "events").glob("*.jsonl")
        )


def wait_until(holds: Callable[[], object], what: str) -> float:
    """Wait for a condition; return how many seconds that took."""
    began = time.perf_counter()
    while not holds():
        assert time.perf_counter() - began < 2 * GIVE_UP_SECONDS, f"not in time: {what}"
        time.sleep(0.01)
    return time.perf_counter() - began


def spec_with(port: int, settings: dict[str, str]) -> ClusterSpec:
    """Return one controller and one broker."""
    return ClusterSpec(controllers=1, brokers=1, port=port, settings={**SETTINGS, **settings})


def register_fake_brokers(peer: Peer, cluster_id: str) -> None:
    """Register and unfence fake brokers."""
    for broker_id in NOBODIES:
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=cluster_id,
            incarnation_id=broker_id.to_bytes(16),
            listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=9, security_protocol=0)],
            features=[
                Feature(
                    name="metadata.version",
                    min_supported_version=1,
                    max_supported_version=HIGHEST_LEVEL,
                )
            ],
            log_dirs=[(broker_id << 64).to_bytes(16)],
        )
        registered = peer.ask(request, REGISTRATION_VERSION, BrokerRegistrationResponse)
        assert registered.error_code == ErrorCode.NONE, registered
        heartbeat = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=registered.broker_epoch,
            current_metadata_offset=CAUGHT_UP,
            want_fence=False,
        )
        answer = peer.ask(heartbeat, 0, BrokerHeartbeatResponse)
        assert answer.error_code == ErrorCode.NONE and not answer.is_fenced, answer


def create(peer: Peer, partitions: int) -> float:
    """Create the partitions, and return how many seconds that took."""
    began = time.perf_counter()
    for number in range(0, partitions, PARTITIONS_PER_TOPIC):
        topic = CreatableTopic(
            name=f"topic-{number:07d}",
            num_partitions=BROKER_DEFAULT,
            replication_factor=BROKER_DEFAULT,
        )
        for index in range(min(PARTITIONS_PER_TOPIC, partitions - number)):
            replicas = [NOBODIES[(index + turn) % len(NOBODIES)] for turn in range(len(NOBODIES))]
            topic.assignments.append(
                CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
            )
        answer = peer.ask(
            CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7, CreateTopicsResponse
        )
        assert answer.topics[0].error_code == ErrorCode.NONE, (
            answer.topics[0].error_code,
            answer.topics[0].error_message,
        )
    return time.perf_counter() - began


def report_row(name: str, what: str, seconds: float, node: OurNode | None = None) -> None:
    """Report seconds, and the memory of the node afterwards."""
    report_cost(f"partitions.{name}", what, "s", [seconds])
    if node is not None:
        memory = resident_mebibytes(node.pid)
        title = f"resident memory after: {what}"
        report_cost(f"partitions.memory.{name}", title, "MiB", [memory], basis=Basis.SIZE)


def measure(root: Path, partitions: int) -> None:
    """Measure all starts of one controller and one broker."""
    port = free_port_range(1)
    spec = spec_with(port, {})
    controller, broker = MeasuredNode(spec, CONTROLLER, root), MeasuredNode(spec, BROKER, root)
    nodes = [controller, broker]
    try:
        report_row(
            "controller.empty", "controller, empty metadata", controller.ready_seconds(), controller
        )
        report_row("broker.empty", "broker, empty metadata", broker.ready_seconds(), broker)
        stop_well(broker)
        with Peer.at(controller.controller, timeout_seconds=GIVE_UP_SECONDS) as peer:
            register_fake_brokers(peer, spec.cluster_id)
            report_row(
                "create",
                f"create {partitions:,} partitions, 3 replicas each",
                create(peer, partitions),
                controller,
            )
        controller.stop()
        report_row(
            "controller.log", "controller, from the log", controller.ready_seconds(), controller
        )
        broker.forget()
        report_row(
            "broker.controller_log",
            "broker, from the controller's log",
            broker.ready_seconds(),
            broker,
        )
        stop_well(broker)
        report_row("broker.again", "the same broker again", broker.ready_seconds(), broker)
        stop_well(broker)
        controller.stop()
        between = {
            "metadata.log.max.record.bytes.between.snapshots": str(SNAPSHOT_BYTES * partitions)
        }
        write_snapshot(controller, spec_with(port, between))
        controller.configure(spec)
        report_row(
            "controller.snapshot",
            "controller, from a snapshot (and the log checked)",
            controller.ready_seconds(),
            controller,
        )
    finally:
        for node in nodes:
            node.remove()


def stop_well(broker: MeasuredNode) -> None:
    """Stop a broker by a controlled shutdown, so that its next incarnation need not wait for the
    end of its session.
    """
    time.sleep(1)
    broker.stop()


def write_snapshot(controller: MeasuredNode, spec: ClusterSpec) -> None:
    """Let a controller write a snapshot of all metadata, and stop it."""
    controller.configure(spec)
    controller.ready_seconds()
    ready = time.perf_counter()
    found = controller.directory / "data" / "__cluster_metadata-0"
    wait_until(lambda: list(found.glob("*.checkpoint")), "a snapshot is written")
    report_row("snapshot", "snapshot, after a start that found it due", time.perf_counter() - ready)
    controller.stop()
    size = max(file.stat().st_size for file in found.glob("*.checkpoint"))
    log = sum(file.stat().st_size for file in found.glob("*.log"))
    print(f"the log holds {log / 1e6:.1f} MB, the snapshot {size / 1e6:.1f} MB")


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=100_000)
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="kraftsim-bench-"))
    try:
        measure(root, options.partitions)
    finally:
        rmtree(root, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
