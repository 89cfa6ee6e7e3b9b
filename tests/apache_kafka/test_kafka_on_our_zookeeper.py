"""A broker of Apache Kafka 3.9.1 on our ZooKeeper, which is killed with kill -9 and stays down
until all sessions have expired.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from protocol.zookeeper.kafka_znodes import (
    CLUSTER_ID,
    CONTROLLER,
    CONTROLLER_EPOCH,
    FEATURE,
    PERSISTENT_PATHS,
    PRODUCER_ID_BLOCK,
    BrokerZnode,
    ControllerZnode,
    PartitionStateZnode,
    ProducerIdBlockZnode,
    TopicZnode,
    broker_path,
    build_cluster_id,
    build_config,
    build_features,
    config_path,
    parse_cluster_id,
    parse_config,
    state_path,
    topic_path,
)
from protocol.zookeeper.op_codes import OpCode
from protocol.zookeeper.znodes import GetDataResponse, SetDataRequest, WatchedPath
from tests.apache_kafka.harness import ApacheKafka
from tests.apache_kafka.zookeeper_mode import broker_of_zookeeper
from tests.node.raw_zookeeper_client import ZooKeeperClient, ZooKeeperResponse
from tests.node.zookeeper_server import RunningZookeeper

pytestmark = pytest.mark.interop

RECORDS = 200
SESSION_MS = 6000


@contextmanager
def broker(port: int) -> Iterator[ApacheKafka]:
    running = broker_of_zookeeper(
        port, settings={"zookeeper.session.timeout.ms": str(SESSION_MS), "broker.rack": "shelf"}
    )
    with running:
        yield running


def get(port: int, path: str) -> ZooKeeperResponse:
    with ZooKeeperClient(port) as client:
        return client.ask(OpCode.GET_DATA, WatchedPath(path=path))


def assert_texts_are_kafkas(port: int) -> None:
    """Znodes written by Kafka are parsed and rebuilt byte for byte."""
    for path, cls in (
        (broker_path(1), BrokerZnode),
        (CONTROLLER, ControllerZnode),
        (topic_path("first"), TopicZnode),
        (state_path("first", 0), PartitionStateZnode),
        (PRODUCER_ID_BLOCK, ProducerIdBlockZnode),
    ):
        data = get(port, path).read(GetDataResponse).data
        assert cls.parse(data).build() == data, path
    assert (
        build_cluster_id(parse_cluster_id(data := get(port, CLUSTER_ID).read(GetDataResponse).data))
        == data
    )
    assert (
        build_config(
            parse_config(
                data := get(port, config_path("topics", "first")).read(GetDataResponse).data
            )
        )
        == data
    )
    assert build_features({}) == get(port, FEATURE).read(GetDataResponse).data
    assert [path for path in PERSISTENT_PATHS if get(port, path).header.error] == []


def produce(
    bootstrap: str, topic: str, *, idempotent: bool = True, timeout_ms: int = 30_000
) -> int:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": idempotent,
            "message.timeout.ms": timeout_ms,
        }
    )
    acknowledged: list[int] = []
    for number in range(RECORDS):
        producer.produce(
            topic, str(number), on_delivery=lambda error, _: acknowledged.append(0 if error else 1)
        )
    assert producer.flush(30) == 0
    return sum(acknowledged)


def test_a_deposed_controller_still_allocates_producer_ids(tmp_path: Path) -> None:
    """Another controller has raised /controller_epoch: its writes are refused from then on, but not
    a block (bug `unfenced-producer-id-blocks`).
    """
    zookeeper = RunningZookeeper(tmp_path)
    zookeeper.start()
    with broker(zookeeper.port) as kafka:
        assert produce(kafka.bootstrap, "before", idempotent=False) == RECORDS
        assert get(zookeeper.port, PRODUCER_ID_BLOCK).read(GetDataResponse).data is None
        with ZooKeeperClient(zookeeper.port) as client:
            assert (
                client.ask(
                    OpCode.SET_DATA, SetDataRequest(path=CONTROLLER_EPOCH, data=b"7")
                ).header.error
                == 0
            )
        assert produce(kafka.bootstrap, "before") == RECORDS, "a producer gets an id"
        assert (
            json.loads(get(zookeeper.port, PRODUCER_ID_BLOCK).read(GetDataResponse).data)[
                "block_end"
            ]
            == "999"
        )
        assert get(zookeeper.port, CONTROLLER_EPOCH).read(GetDataResponse).data == b"7", (
            "it does not know yet"
        )
        assert produce(kafka.bootstrap, "after", idempotent=False, timeout_ms=3000) == 0
        assert get(zookeeper.port, topic_path("after")).header.error == 0, "which a broker creates"
        assert get(zookeeper.port, state_path("after", 0)).header.error != 0, (
            "which a controller writes: it was refused"
        )
    zookeeper.stop()


def test_a_broker_survives_a_zookeeper_kill_and_session_expiry(tmp_path: Path) -> None:
    zookeeper = RunningZookeeper(tmp_path)
    zookeeper.start()
    with broker(zookeeper.port) as kafka:
        assert produce(kafka.bootstrap, "first") == RECORDS
        block = json.loads(
            get(zookeeper.port, "/latest_producer_id_block").read(GetDataResponse).data
        )
        assert (block["broker"], block["block_start"], block["block_end"]) == (1, "0", "999")
        registered = get(zookeeper.port, "/brokers/ids/1").read(GetDataResponse).stat
        assert (registered.version, registered.ephemeral_owner != 0) == (1, True)
        assert get(zookeeper.port, "/controller_epoch").read(GetDataResponse).data == b"1"

        assert_texts_are_kafkas(zookeeper.port)

        zookeeper.kill()
        zookeeper = RunningZookeeper(tmp_path, incarnation=2, port=zookeeper.port)
        zookeeper.start()
        assert produce(kafka.bootstrap, "after a kill".replace(" ", "-")) == RECORDS
        assert (
            get(zookeeper.port, "/brokers/ids/1").read(GetDataResponse).stat.czxid
            == registered.czxid
        ), "its session survived"

        zookeeper.stop()
        time.sleep(0.5)
        zookeeper = RunningZookeeper(tmp_path, incarnation=3, port=zookeeper.port)
        zookeeper.start()
        assert produce(kafka.bootstrap, "after-a-restart") == RECORDS
    deadline = time.monotonic() + 30
    while get(zookeeper.port, "/brokers/ids/1").header.error == 0:
        assert time.monotonic() < deadline, "the session of a killed broker expires"
        time.sleep(0.2)
    assert get(zookeeper.port, "/controller").header.error != 0, "it was the controller, too"
    zookeeper.stop()
