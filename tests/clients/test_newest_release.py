"""Real clients on a cluster that emulates Apache Kafka 4.4: topic ids, transaction.version 2, the
new group protocol, no old API versions.

Nothing is configured for it: clients discover the API versions and the finalized features.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition

from kraftsim.cluster.processes import ProcessCluster
from tests.apache_kafka.harness import TOOLS_OF_4, run_tool
from tests.cluster.broker_client import broker_client
from tests.cluster.running import running_processes

pytestmark = pytest.mark.interop
PARTITIONS, RECORDS, SECONDS = 3, 300, 60
QUIET = {"log_level": 0}
READ_COMMITTED = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
}


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """One controller and three brokers as processes."""
    with running_processes(
        tmp_path_factory.mktemp("newest") / "run", brokers=3, release="4.4"
    ) as running:
        yield running
        running.require_running()


@pytest.fixture
def copied(newest: ProcessCluster, topic: str) -> str:
    """A topic with all replicas in sync."""
    with broker_client(newest.bootstrap.partition(",")[0]) as broker:
        broker.create_topic(topic, PARTITIONS, replicas=3)
    return topic


def values_by_librdkafka(cluster: ProcessCluster, topic: str, count: int) -> Counter[bytes]:
    """Read this many committed records of a topic, and check whether there are more."""
    reader = Consumer(
        {
            **QUIET,
            **READ_COMMITTED,
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"{topic}-readers",
        }
    )
    reader.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found = [message.value() for message in reader.consume(count, SECONDS)]
    found += [message.value() for message in reader.consume(1, 1.0)]
    reader.close()
    return Counter(value for value in found if value is not None)


def test_librdkafka_commits_and_aborts(newest: ProcessCluster, copied: str) -> None:
    """Only committed records are read, once each; the offsets of the group are committed with them,
    with its generation (KIP-447).
    """
    producer = Producer(
        {**QUIET, "bootstrap.servers": newest.bootstrap, "transactional.id": f"{copied}-writer"}
    )
    producer.init_transactions(SECONDS)
    member = Consumer(
        {**QUIET, **READ_COMMITTED, "bootstrap.servers": newest.bootstrap, "group.id": copied}
    )
    for turn in range(6):
        producer.begin_transaction()
        for number in range(RECORDS // 6):
            producer.produce(copied, b"%d-%d" % (turn, number), partition=number % PARTITIONS)
        producer.send_offsets_to_transaction(
            [TopicPartition(copied, 0, turn)], member.consumer_group_metadata(), SECONDS
        )
        (producer.abort_transaction if turn % 2 else producer.commit_transaction)(SECONDS)
    expected = Counter(
        b"%d-%d" % (turn, number) for turn in (0, 2, 4) for number in range(RECORDS // 6)
    )
    assert values_by_librdkafka(newest, copied, sum(expected.values())) == expected
    assert member.committed([TopicPartition(copied, 0)], SECONDS)[0].offset == 4
    member.close()


def test_aiokafka_commits_and_aborts(newest: ProcessCluster, copied: str) -> None:
    """It also reads in a group."""

    async def transform_once() -> Counter[bytes]:
        async with AIOKafkaProducer(
            bootstrap_servers=newest.bootstrap, transactional_id=f"{copied}-writer"
        ) as producer:
            for turn in range(4):
                await producer.begin_transaction()
                for number in range(RECORDS // 6):
                    await producer.send_and_wait(
                        copied, b"%d-%d" % (turn, number), partition=number % PARTITIONS
                    )
                await (producer.abort_transaction() if turn % 2 else producer.commit_transaction())
        settings = {
            "group_id": copied,
            "isolation_level": "read_committed",
            "auto_offset_reset": "earliest",
        }
        async with AIOKafkaConsumer(
            copied, bootstrap_servers=newest.bootstrap, **settings
        ) as consumer:
            found: Counter[bytes] = Counter()
            while batches := await consumer.getmany(timeout_ms=3000):
                found.update(record.value for records in batches.values() for record in records)
            await consumer.commit()
            return found

    assert asyncio.run(asyncio.wait_for(transform_once(), SECONDS)) == Counter(
        b"%d-%d" % (turn, number) for turn in (0, 2) for number in range(RECORDS // 6)
    )


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_4_1_java_client_uses_transaction_version_2(
    newest: ProcessCluster, copied: str, protocol: str
) -> None:
    """Its epoch is bumped at the end of each transaction; every record exists once, and the group
    has committed the end offsets.
    """
    load = ["--num-records", str(RECORDS), "--record-size", "20", "--throughput", "600"]
    transactions = ["--transactional-id", f"{copied}-writer", "--transaction-duration-ms", "100"]
    run_tool(
        TOOLS_OF_4,
        "producer-performance",
        "--topic",
        copied,
        *load,
        *transactions,
        "--producer-props",
        f"bootstrap.servers={newest.bootstrap}",
    )
    options = [
        "--isolation-level",
        "read_committed",
        "--consumer-property",
        f"group.protocol={protocol}",
        "--timeout-ms",
        "30000",
    ]
    reading = [
        "--topic",
        copied,
        "--group",
        copied,
        "--from-beginning",
        "--max-messages",
        str(RECORDS),
        *options,
    ]
    read = run_tool(
        TOOLS_OF_4, "console-consumer", "--bootstrap-server", newest.bootstrap, *reading
    )
    assert len(read.splitlines()) == RECORDS
    output = run_tool(
        TOOLS_OF_4,
        "consumer-groups",
        "--bootstrap-server",
        newest.bootstrap,
        "--describe",
        "--group",
        copied,
        "--state",
    )
    assert copied in output
    described = run_tool(
        TOOLS_OF_4,
        "topics",
        "--bootstrap-server",
        newest.bootstrap,
        "--describe",
        "--topic",
        copied,
    )
    assert described.count("Isr: ") == PARTITIONS and "Elr: " in described, json.dumps(described)
