"""Brokers of ours and of Apache Kafka 3.9.1 in one ZooKeeper-mode cluster: either kind is
controller, with either kind of ZooKeeper.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from protocol.zookeeper.kafka_znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    ControllerZnode,
    PartitionStateZnode,
    TopicZnode,
    state_path,
    topic_path,
)
from protocol.zookeeper.op_codes import OpCode
from protocol.zookeeper.znodes import GetDataResponse, WatchedPath
from tests.apache_kafka.harness import ApacheKafka
from tests.apache_kafka.zookeeper import ApacheZookeeper
from tests.apache_kafka.zookeeper_brokers import OurBroker
from tests.apache_kafka.zookeeper_mode import broker_of_zookeeper
from tests.node.raw_zookeeper_client import ZooKeeperClient
from tests.node.zookeeper_server import RunningZookeeper

pytestmark = pytest.mark.interop

OURS, THEIRS = 1, 2
RECORDS = 100
PATIENCE_S = 60.0
SESSION = {"zookeeper.session.timeout.ms": "6000"}


@dataclass
class Mixed:
    """One broker of each kind on one ZooKeeper; ours was started first."""

    zookeeper_port: int
    ours: OurBroker
    theirs: ApacheKafka

    def data(self, path: str) -> bytes | None:
        """Return the data of a znode."""
        with ZooKeeperClient(self.zookeeper_port) as client:
            response = client.ask(OpCode.GET_DATA, WatchedPath(path=path))
            return None if response.header.error else response.read(GetDataResponse).data

    def controller(self) -> int | None:
        """Return the id of the controller."""
        data = self.data(CONTROLLER)
        return None if data is None else ControllerZnode.parse(data).broker_id

    def states(self, count: int = 2) -> list[tuple[int, list[int]]]:
        """Return leaders and in-sync replicas."""
        found = [
            PartitionStateZnode.parse(self.data(state_path("t", number)) or b"")
            for number in range(count)
        ]
        return [(state.leader, sorted(state.isr)) for state in found]

    def produce(self) -> int:
        """Produce with idempotence and return how many were acknowledged."""
        acknowledged: list[int] = []
        producer = Producer(
            {
                "bootstrap.servers": f"{self.ours.bootstrap},{self.theirs.bootstrap}",
                "enable.idempotence": True,
                "message.timeout.ms": 60_000,
            }
        )
        for number in range(RECORDS):
            producer.produce(
                "t",
                str(number),
                partition=number % 2,
                on_delivery=lambda error, _: acknowledged.append(0 if error else 1),
            )
        assert producer.flush(60) == 0
        return sum(acknowledged)


@pytest.fixture(scope="module", params=["our ZooKeeper", "Apache ZooKeeper"])
def mixed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mixed]:
    directory: Path = tmp_path_factory.mktemp("mixed")
    with ExitStack() as stack:
        if request.param == "our ZooKeeper":
            zookeeper = RunningZookeeper(directory / "zookeeper")
            zookeeper.start()
            stack.callback(zookeeper.stop)
            port = zookeeper.port
        else:
            apache = stack.enter_context(ApacheZookeeper())
            apache.start()
            port = apache.port
        ours = OurBroker(directory, OURS, port)
        ours.start()
        stack.callback(ours.stop)
        theirs = stack.enter_context(broker_of_zookeeper(port, THEIRS, settings=SESSION))
        yield Mixed(port, ours, theirs)


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up_at
        time.sleep(0.1)


def test_a_broker_of_either_kind_can_be_controller(mixed: Mixed) -> None:
    """Topics are created by Apache Kafka's tools, leaders move when a broker stops, and a restarted
    broker rejoins the ISR.
    """
    assert mixed.controller() == OURS
    mixed.theirs.tool("topics", "--create", "--topic", "t", "--replica-assignment", "1:2,2:1")
    assert mixed.states() == [(1, [1, 2]), (2, [1, 2])]
    described = mixed.theirs.tool("topics", "--describe", "--topic", "t")
    assert re.findall(r"Leader: (\d)", described) == ["1", "2"]
    assert mixed.produce() == RECORDS

    mixed.ours.stop()
    wait_until(lambda: mixed.controller() == THEIRS)
    assert mixed.data(CONTROLLER_EPOCH) == b"2"
    assert mixed.states() == [(2, [2]), (2, [2])], "ours has moved its leaderships to Apache Kafka"
    mixed.ours.start()
    wait_until(lambda: mixed.states() == [(2, [1, 2]), (2, [1, 2])])
    assert mixed.produce() == RECORDS
    mixed.theirs.tool(
        "leader-election", "--election-type", "preferred", "--topic", "t", "--partition", "0"
    )
    wait_until(lambda: mixed.states() == [(1, [1, 2]), (2, [1, 2])])

    mixed.theirs.stop()
    wait_until(lambda: mixed.controller() == OURS)
    assert mixed.data(CONTROLLER_EPOCH) == b"3"
    wait_until(lambda: [leader for leader, _ in mixed.states()] == [1, 1])
    mixed.theirs.start()
    wait_until(lambda: [isr for _, isr in mixed.states()] == [[1, 2], [1, 2]])
    assert mixed.produce() == RECORDS
    topic = mixed.data(topic_path("t")) or b""
    assert TopicZnode.parse(topic).build() == topic
    mixed.theirs.tool("topics", "--delete", "--topic", "t")
    wait_until(lambda: mixed.data(topic_path("t")) is None)
