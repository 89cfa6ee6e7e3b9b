"""Every real client through a relay that drops responses: appended batches are retried, and must be
recognised as duplicates (KIP-98).
"""

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import kafka
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from kraftsim.cluster.processes import ProcessCluster
from tests.apache_kafka.class_path import DEFAULT_RELEASE, class_path
from tests.apache_kafka.harness import run_tool
from tests.cluster.broker_client import broker_client
from tests.cluster.lossy_relay import LossyRelay
from tests.cluster.running import behind_relay, logged_events

pytestmark = pytest.mark.interop
RECORDS = 1000
PACE_SECONDS = 0.002
"""The pause after every ten records, so that there are many requests."""
Write = Callable[[str, str], None]


@pytest.fixture(scope="module")
def relay() -> Iterator[LossyRelay]:
    with LossyRelay() as running:
        yield running


@pytest.fixture(scope="module")
def lossy(relay: LossyRelay, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with behind_relay(relay, tmp_path_factory.mktemp("lossy") / "run") as cluster:
        yield cluster


def by_librdkafka(bootstrap: str, topic: str) -> None:
    quick = {
        "log_level": 0,
        "linger.ms": 1,
        "batch.num.messages": 20,
        "retry.backoff.ms": 20,
        "reconnect.backoff.ms": 20,
    }
    producer = Producer({**quick, "bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=0)
        if number % 10 == 0:
            producer.poll(PACE_SECONDS)
    assert producer.flush(60) == 0


def by_aiokafka(bootstrap: str, topic: str) -> None:
    async def write() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            retry_backoff_ms=20,
            max_batch_size=300,
        )
        await producer.start()
        sent = []
        for number in range(RECORDS):
            sent.append(await producer.send(topic, b"%d" % number, partition=0))
            if number % 10 == 0:
                await asyncio.sleep(PACE_SECONDS)
        await asyncio.gather(*sent)
        await producer.stop()

    asyncio.run(write())


def by_kafka_python(bootstrap: str, topic: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        retry_backoff_ms=20,
        reconnect_backoff_ms=20,
        batch_size=200,
    )
    for number in range(RECORDS):
        producer.send(topic, b"%d" % number, partition=0)
    producer.flush(60)
    producer.close()


def by_java(bootstrap: str, topic: str) -> None:
    class_path()
    words = [
        "--topic",
        topic,
        "--num-records",
        str(RECORDS),
        "--payload-monotonic",
        "--throughput",
        "1000",
    ]
    properties = [
        f"bootstrap.servers={bootstrap}",
        "linger.ms=1",
        "batch.size=300",
        "retry.backoff.ms=20",
        "reconnect.backoff.ms=20",
    ]
    assert f"{RECORDS} records sent" in run_tool(
        DEFAULT_RELEASE, "producer-performance", *words, "--producer-props", *properties
    )


@pytest.fixture
def by_franz_go(franz_go: Path) -> Write:
    def write(bootstrap: str, topic: str) -> None:
        words = [str(franz_go), "write", bootstrap, topic, "1", "1", str(RECORDS)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, done.stderr

    return write


@pytest.mark.parametrize("client", ["librdkafka", "aiokafka", "kafka_python", "java", "franz_go"])
def test_retries_of_real_clients_are_recognised_as_duplicates(
    lossy: ProcessCluster,
    relay: LossyRelay,
    topic: str,
    client: str,
    request: pytest.FixtureRequest,
) -> None:
    write: Write = (
        request.getfixturevalue("by_franz_go")
        if client == "franz_go"
        else globals()[f"by_{client}"]
    )
    with broker_client(lossy.bootstrap) as broker:
        broker.create_topic(topic)
        relay.reset()
        write(f"127.0.0.1:{relay.port}", topic)
        assert broker.values(topic) == [b"%d" % number for number in range(RECORDS)], (
            "each record once, in order"
        )
    duplicates, refused = (
        [
            event
            for event in logged_events(lossy.directory, kind, "broker-1")
            if event["topic"] == topic
        ]
        for kind in ("DuplicateAnswered", "ProduceRefused")
    )
    assert relay.lost > 2 and duplicates
    assert len(duplicates) + len(refused) >= relay.lost, (
        "a lost refusal of a new leader is followed by no duplicate"
    )
