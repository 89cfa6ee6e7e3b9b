"""Controllers and a broker of Apache Kafka, and a broker of kraftsim: ours registers, replays their
metadata log, and serves like any other.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from kraftsim.cluster.spec import CONTROLLER_PORT_DISTANCE
from tests.apache_kafka.harness import CLUSTER_ID, ApacheKafka
from tests.apache_kafka.mixed import (
    METADATA_LOG,
    OF_A_CONTROLLER,
    PAIRS,
    OurNode,
    Workload,
    apache,
    logged_errors,
    metadata_of,
    metadata_records,
    mixed_port,
    new_leader,
    voters_text,
    wait_for_leaders,
    wait_until,
)
from tests.cluster.broker_client import broker_client
from tests.cluster.running import QUICK_SESSIONS

pytestmark = pytest.mark.interop
OURS, THEIRS = 5, 101
CONTROLLERS = (101, 102, 103)
BLOCK = 1000
PARTITIONS = 8
PATIENT = {"controller.quorum.election.timeout.ms": "10000"}
"""The combined node has a longer election timeout, so that a leader can be killed without killing
the broker.
"""


@dataclass(frozen=True)
class Mixed:
    """The cluster: one of their nodes is broker and controller, two are controllers."""

    controllers: dict[int, ApacheKafka]
    ours: OurNode
    our_address: str

    @property
    def theirs(self) -> ApacheKafka:
        """Their broker."""
        return self.controllers[THEIRS]

    @property
    def brokers(self) -> tuple[str, str]:
        """The address of our broker and of theirs."""
        return self.our_address, self.theirs.bootstrap

    def leader(self) -> int:
        """Return the id of the active controller."""
        running = [node.controller for node in self.controllers.values() if node.is_running]
        return new_leader(running, among=CONTROLLERS)

    def create(self, topic: str) -> None:
        """Create a topic through our broker, and wait until both brokers return the same
        metadata.
        """
        with broker_client(self.our_address) as broker:
            broker.create_topic(topic, PARTITIONS)
        wait_until(
            lambda: metadata_of(self.brokers[0], topic) == metadata_of(self.brokers[1], topic),
            "both brokers know the same",
        )


@pytest.fixture(scope="module", params=PAIRS, ids=lambda pair: f"{pair.theirs}-{pair.ours}")
def mixed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mixed]:
    """All nodes run; a test that stops a node restarts it."""
    port = mixed_port()
    ports = {
        node_id: port + CONTROLLER_PORT_DISTANCE + index
        for index, node_id in enumerate(CONTROLLERS)
    }
    voters = {"controller.quorum.voters": voters_text(ports)}
    its = {
        "process.roles": "broker",
        "node.id": str(OURS),
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "kraftsim.cluster.id": CLUSTER_ID,
        "kraftsim.release": request.param.ours,
        **QUICK_SESSIONS,
        **voters,
    }
    with ExitStack() as stack:
        nodes = {
            node_id: stack.enter_context(
                apache(
                    request.param.theirs,
                    {
                        "node.id": str(node_id),
                        **voters,
                        **(PATIENT if node_id == THEIRS else {"process.roles": "controller"}),
                    },
                    controller_port=controller_port,
                    wait=False,
                    level=request.param.level,
                )
            )
            for node_id, controller_port in ports.items()
        }
        for node in nodes.values():
            node.wait()
        began = time.monotonic()
        ours = stack.enter_context(OurNode(tmp_path_factory.mktemp("ours") / "node", its))
        print(
            f"{request.param.theirs}: our broker serves {time.monotonic() - began:.2f} s after "
            "its start"
        )
        yield Mixed(nodes, ours, f"127.0.0.1:{port}")
        assert not [
            line for node in nodes.values() for line in logged_errors(node, but=OF_A_CONTROLLER)
        ]


def test_our_broker_registers_and_both_brokers_return_the_same_metadata(mixed: Mixed) -> None:
    """It is registered and unfenced, and their controller assigns partitions to it."""
    mixed.create("shared")
    cluster_id, brokers, _, _, partitions = metadata_of(mixed.our_address, "shared")
    assert cluster_id == CLUSTER_ID
    assert [broker_id for broker_id, _, _ in brokers] == [OURS, THEIRS]
    assert {leader for _, leader, _, _, _ in partitions} == {OURS, THEIRS}


def test_an_apache_controller_allocates_producer_ids_for_both_brokers(mixed: Mixed) -> None:
    """Each broker has its own blocks, and no id is in two of them (KIP-730)."""
    drawn = {}
    for broker_id, address in zip((OURS, THEIRS), mixed.brokers, strict=True):
        with broker_client(address) as broker:
            drawn[broker_id] = [broker.fresh_producer_id() for _ in range(20)]
    log = mixed.controllers[mixed.leader()].data / METADATA_LOG
    blocks = [
        record["data"]
        for record in metadata_records(log, release=mixed.theirs.release)
        if record["type"] == "PRODUCER_IDS_RECORD"
    ]
    for broker_id, ids in drawn.items():
        own = [
            range(block["nextProducerId"] - BLOCK, block["nextProducerId"])
            for block in blocks
            if block["brokerId"] == broker_id
        ]
        assert all(any(drawn_id in block for block in own) for drawn_id in ids), (ids, own)
    assert not set(drawn[OURS]) & set(drawn[THEIRS])


def test_an_idempotent_workload_survives_a_kill_of_the_active_apache_controller(
    mixed: Mixed,
) -> None:
    """Our broker finds the next leader, forwards CreateTopics to it, and gets its next block from
    it; nothing is lost or duplicated.
    """
    topic = "through-failover"
    mixed.create(topic)
    leader = mixed.leader()
    assert leader != THEIRS, "its election timeout is longer than that of the others"
    workload = Workload(",".join(mixed.brokers), topic, PARTITIONS)
    workload.write(2000)
    mixed.controllers[leader].stop(cleanly=False)
    killed = time.monotonic()
    workload.write(2000)
    with broker_client(mixed.our_address) as broker:
        last = broker.fresh_producer_id()
        broker.create_topic("after-failover", 2)
        print(
            f"{mixed.theirs.release}: kill -9 of the active controller to CreateTopics answered "
            f"through our broker: {time.monotonic() - killed:.2f} s"
        )
        drawn = [last]
        while drawn[-1] // BLOCK == last // BLOCK:
            drawn.append(broker.fresh_producer_id())
        assert drawn == sorted(set(drawn)), "ids only grow; librdkafka takes some in between"
    workload.flush()
    workload.check()
    mixed.controllers[leader].start()
    wait_until(
        lambda: (
            metadata_of(mixed.brokers[0], "after-failover")
            == metadata_of(mixed.brokers[1], "after-failover")
        ),
        "both know the same",
    )


def test_our_broker_shuts_down_cleanly_and_returns(mixed: Mixed) -> None:
    """Controlled shutdown with their controller (KIP-631), and a new registration."""
    topic = "there-and-back"
    mixed.create(topic)
    workload = Workload(",".join(mixed.brokers), topic, PARTITIONS)
    workload.write(400)
    workload.flush()
    mixed.ours.stop()
    wait_for_leaders(mixed.brokers[1], topic, {THEIRS, -1})
    mixed.ours.start()
    wait_for_leaders(mixed.brokers[1], topic, {OURS, THEIRS})
    workload.write(400)
    workload.flush()
    workload.check()
