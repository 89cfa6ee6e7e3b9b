"""Faults of requests met by the clients that people use: librdkafka and aiokafka recover, and no
record is lost or doubled.
"""

from collections.abc import Iterator
from typing import Any

import pytest

import kraftsim

pytestmark = pytest.mark.interop
SECONDS = 30
QUICK = {"socket.timeout.ms": 1500, "transaction.timeout.ms": 20_000}
NOT_OVERTAKEN = ("Produce reorder wait_ms=300",)
"""There is no other producer: it waits, and has no effect."""
MODES = [
    pytest.param({}, id="embedded"),
    pytest.param({"mode": "processes", "network_faults": True}, id="processes"),
]


@pytest.fixture(scope="module", params=MODES)
def cluster(request: pytest.FixtureRequest) -> Iterator[kraftsim.Cluster]:
    with kraftsim.Cluster(**request.param) as running:
        yield running
        running.check()


def records_of(cluster: kraftsim.Cluster, topic: str) -> list[bytes | None]:
    """The committed records of a topic, read by librdkafka."""
    import confluent_kafka

    reader = confluent_kafka.Consumer(
        {
            **cluster.client_settings(),
            "group.id": f"readers of {topic}",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    reader.subscribe([topic])
    found = []
    while (message := reader.poll(SECONDS)) is not None and message.error() is None:
        found.append(message.value())
    reader.close()
    assert message is not None, "the end of the partition was reached"
    return found


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("inject_error", ("Produce", "NOT_LEADER_OR_FOLLOWER")),
        ("inject_error", ("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS")),
        ("inject_error", ("AddPartitionsToTxn", "CONCURRENT_TRANSACTIONS")),
        ("inject_error", ("EndTxn", "CONCURRENT_TRANSACTIONS")),
        ("inject_error", ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE")),
        ("drop_request", ("Produce",)),
        ("drop_reply", ("Produce",)),
        ("drop_reply", ("EndTxn",)),
        ("delay_request", ("Produce", 200)),
        ("delay_reply", ("EndTxn", 200)),
        ("duplicate_request", ("Produce",)),
        ("duplicate_request", ("EndTxn",)),
        ("disconnect", ("Produce",)),
        ("inject", ("Produce disconnect after_bytes=30",)),
        ("inject", ("Produce disconnect=reply after_bytes=6",)),
        ("inject", ("EndTxn truncate after_bytes=25",)),
        ("inject", ("Metadata throttle throttle_ms=300",)),
        ("inject", ("Produce throttle=reply bytes_per_second=300",)),
        ("inject", NOT_OVERTAKEN),
        ("inject", ("EndTxn blackhole duration_ms=2500",)),
        ("inject", ("* blackhole client_id=rdkafka duration_ms=500",)),
    ],
)
def test_a_transaction_of_librdkafka_commits_once(
    cluster: kraftsim.Cluster, verb: str, arguments: tuple[Any, ...]
) -> None:
    import confluent_kafka

    topic = cluster.create_topic()
    settings = {**cluster.client_settings(), **QUICK, "transactional.id": topic}
    with getattr(cluster, verb)(*arguments) as fault:
        producer = confluent_kafka.Producer(settings)
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic, b"%d" % number)
        producer.commit_transaction(SECONDS)
        if arguments != NOT_OVERTAKEN:
            fault.wait()
        assert fault.matched
    assert records_of(cluster, topic) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("inject_error", ("Produce", "NOT_LEADER_OR_FOLLOWER")),
        ("inject_error", ("AddPartitionsToTxn", "CONCURRENT_TRANSACTIONS")),
        ("inject_error", ("EndTxn", "COORDINATOR_LOAD_IN_PROGRESS")),
        ("drop_reply", ("Produce",)),
        ("drop_request", ("EndTxn",)),
        ("delay_reply", ("Produce", 200)),
        ("duplicate_request", ("Produce",)),
        ("disconnect", ("EndTxn",)),
        ("inject", ("Produce disconnect=reply after_bytes=6",)),
        ("inject", ("EndTxn truncate after_bytes=25",)),
        ("inject", ("AddPartitionsToTxn throttle throttle_ms=300",)),
        ("inject", ("EndTxn blackhole duration_ms=2500",)),
    ],
)
async def test_a_transaction_of_aiokafka_commits_once(
    cluster: kraftsim.Cluster, verb: str, arguments: tuple[Any, ...]
) -> None:
    from aiokafka import AIOKafkaProducer

    topic = await cluster.aio.create_topic()
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap,
        transactional_id=topic,
        request_timeout_ms=1500,
        transaction_timeout_ms=20_000,
    )
    async with await getattr(cluster.aio, verb)(*arguments) as fault:
        await producer.start()
        async with producer.transaction():
            for number in range(3):
                await producer.send_and_wait(topic, b"%d" % number)
        await fault.wait_async()
    await producer.stop()
    assert records_of(cluster, topic) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("SyncGroup", "REBALANCE_IN_PROGRESS"),
        ("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("Fetch", "NOT_LEADER_OR_FOLLOWER"),
        ("ListOffsets", "LEADER_NOT_AVAILABLE"),
    ],
)
async def test_groups_of_both_clients_read_on(
    cluster: kraftsim.Cluster, api: str, error: str
) -> None:
    import asyncio

    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    topic = await cluster.aio.create_topic()
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap)
    await producer.start()
    await producer.send_and_wait(topic, b"0")
    await producer.stop()
    async with await cluster.aio.inject_error(api, error) as fault:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            group_id=f"aiokafka reads {topic}",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        async with asyncio.timeout(SECONDS):
            assert (await consumer.getone()).value == b"0"
        assert fault.took_effect
        await consumer.stop()
    async with await cluster.aio.inject_error(api, error) as fault:
        assert await asyncio.to_thread(records_of, cluster, topic) == [b"0"]
        assert fault.took_effect
