"""Apache Kafka 3.9.1 is the ZooKeeper-mode controller of a broker of ours, through a controlled
shutdown and a kill.

Our broker accepts the request versions of the controller; the controller finds the expected znodes,
responses and replicas.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.apache_kafka.harness import ApacheKafka, _free_ports
from tests.apache_kafka.zookeeper_mode import broker_of_zookeeper
from tests.node.zookeeper_server import running_zookeeper

pytestmark = pytest.mark.interop

THEIRS, OURS = 1, 2
SESSION_MS = 6000
TOPIC, PARTITIONS, RECORDS = "mixed", 4, 200
PATIENCE_S = 30.0


class OurBroker:
    """Broker 2, a process of ours with a plain property file."""

    def __init__(self, directory: Path, zookeeper_port: int) -> None:
        (port,) = _free_ports(1)
        self.bootstrap = f"127.0.0.1:{port}"
        self._words = directory / "words"
        self._properties = directory / "broker.properties"
        properties = {
            "broker.id": str(OURS),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "zookeeper.connect": f"127.0.0.1:{zookeeper_port}",
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            "log.dirs": str(directory / "data"),
            "offsets.topic.replication.factor": "1",
        }
        self._properties.write_text(
            "".join(f"{key}={value}\n" for key, value in properties.items())
        )
        self.process = self.start()

    def start(self) -> "subprocess.Popen[bytes]":
        with self._words.open("ab") as words:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kraftsim", "node", str(self._properties)],
                stdout=words,
                stderr=words,
            )
        return self.process

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(30) == 0, self._words.read_text()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def two_brokers(directory: Path) -> Iterator[tuple[ApacheKafka, OurBroker]]:
    """Apache Kafka starts first, so it is the controller."""
    with (
        running_zookeeper(directory / "zookeeper") as zookeeper,
        broker_of_zookeeper(
            zookeeper.port, THEIRS, settings={"zookeeper.session.timeout.ms": str(SESSION_MS)}
        ) as kafka,
    ):
        ours = OurBroker(directory, zookeeper.port)
        try:
            yield kafka, ours
        finally:
            ours.end()


def until(what: Callable[[], bool], why: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, why
        time.sleep(0.1)


def brokers(bootstrap: str) -> tuple[list[int], int]:
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10)
    return sorted(found.brokers), found.controller_id


def partitions(bootstrap: str) -> dict[int, tuple[int, list[int]]]:
    topic = (
        AdminClient({"bootstrap.servers": bootstrap}).list_topics(TOPIC, timeout=10).topics[TOPIC]
    )
    return {number: (each.leader, sorted(each.isrs)) for number, each in topic.partitions.items()}


def produce(bootstrap: str) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 30_000}
    )
    errors: list[object] = []
    for number in range(RECORDS):
        producer.produce(
            TOPIC,
            str(number),
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
    assert producer.flush(40) == 0
    assert errors == []


def count(bootstrap: str, wanted: int) -> int:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"at {bootstrap} of {wanted}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([TOPIC])
    found, deadline = 0, time.monotonic() + PATIENCE_S
    while found < wanted and time.monotonic() < deadline:
        message = consumer.poll(1)
        found += message is not None and message.error() is None
    consumer.close()
    return found


def test_our_broker_follows_an_apache_kafka_zookeeper_controller(tmp_path: Path) -> None:
    """UpdateMetadata 8, LeaderAndIsr 7, StopReplica 4, AlterPartition 3, AllocateProducerIds,
    ControlledShutdown; config changes by znode.
    """
    with two_brokers(tmp_path) as (kafka, ours):
        until(
            lambda: brokers(kafka.bootstrap)[0] == [THEIRS, OURS], "the controller has both brokers"
        )
        assert brokers(ours.bootstrap) == ([THEIRS, OURS], THEIRS), (
            "and so does ours, which names the controller"
        )
        admin = AdminClient({"bootstrap.servers": ours.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 2)])[TOPIC].result(20)
        both_brokers = [THEIRS, OURS]
        for each in (kafka, ours):
            until(
                # misc: mypy infers no type for a lambda with a default
                lambda each=each: all(  # type: ignore[misc]
                    isr == both_brokers for _, isr in partitions(each.bootstrap).values()
                ),
                "all are in sync",
            )
        assert (
            sorted({leader for leader, _ in partitions(kafka.bootstrap).values()}) == both_brokers
        ), "both lead"
        produce(kafka.bootstrap)
        produce(ours.bootstrap)

        entry = ConfigEntry("retention.ms", "7200000", incremental_operation=AlterConfigOpType.SET)
        at_kafka = AdminClient({"bootstrap.servers": kafka.bootstrap})
        (done,) = at_kafka.incremental_alter_configs(
            [ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])]
        ).values()
        done.result(20)

        def has_read() -> bool:
            (answer,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, TOPIC)]).values()
            return bool(answer.result(20)["retention.ms"].value == "7200000")

        until(has_read, "ours has read it from ZooKeeper")
        ours.stop()
        assert {leader for leader, _ in partitions(kafka.bootstrap).values()} == {THEIRS}, (
            "it became leader of everything before ours stopped"
        )
        produce(kafka.bootstrap)
        ours.start()
        until(
            lambda: all(isr == both_brokers for _, isr in partitions(kafka.bootstrap).values()),
            "ours has caught up",
        )
        assert count(ours.bootstrap, 3 * RECORDS) == 3 * RECORDS
        ours.end()
        until(lambda: brokers(kafka.bootstrap)[0] == [THEIRS], "its session expires")
