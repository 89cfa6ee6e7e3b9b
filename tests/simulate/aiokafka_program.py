# ruff: noqa: E402  (the launcher comes before what it pins)
"""A separate program: unmodified aiokafka clients inside virtual time. Prints the digest of the
event log, and the records read.

    python tests/simulate/aiokafka_program.py SEED idempotent|transactions
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kraftsim.world.simulated.launcher import relaunch_pinned

PINNING = relaunch_pinned(sys.orig_argv[1:])  # before aiokafka is imported

import asyncio
import hashlib
from collections.abc import Callable, Coroutine

import aiokafka
from aiokafka.structs import TopicPartition

from kraftsim.cluster.administration import create_topic
from kraftsim.cluster.simulation import SimulatedCluster
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.world.simulated import Simulation

RECORDS = 60
SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
}
PATIENT = {"request_timeout_ms": 5000, "retry_backoff_ms": 50}
GROUP = {
    "group_id": "copiers",
    "session_timeout_ms": 6000,
    "heartbeat_interval_ms": 500,
    "enable_auto_commit": False,
    "metadata_max_age_ms": 2000,
}
Program = Callable[[SimulatedCluster, str], Coroutine[object, object, list[str]]]


async def work(cluster: SimulatedCluster, program: Program) -> list[str]:
    """Run a program on its own host once the cluster is up; return what it read."""
    await cluster.wait_until_ready()
    for topic in ("aio", "copied"):
        await create_topic(cluster.addresses, topic, 2)
    simulation = cluster.simulation
    client = simulation.add_host("aio-client")
    bootstrap = ",".join(f"{host}:{port}" for host, port in cluster.addresses)
    return await simulation.spawn(client, program(cluster, bootstrap))


async def idempotent(cluster: SimulatedCluster, bootstrap: str) -> list[str]:
    """Send numbered records while a connection is reset and a broker is killed and restarted; read
    them by assignment.
    """
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, **PATIENT
    )
    await producer.start()
    futures = []
    for index in range(RECORDS):
        futures.append(await producer.send("aio", str(index).encode(), partition=index % 2))
        if index == RECORDS // 3:
            cluster.simulation.network.cut("aio-client")
        if index == RECORDS // 2:
            cluster.simulation.kill("broker-1")
        if index == RECORDS // 2 + 5:
            cluster.simulation.restart("broker-1")
    for future in futures:
        await future
    await producer.stop()
    return await read(bootstrap, "aio", RECORDS)


async def transactions(cluster: SimulatedCluster, bootstrap: str) -> list[str]:
    """Copy numbered records in transactions, as a group member, while a broker is killed and
    restarted; read what was committed.
    """
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, **PATIENT
    ) as producer:
        for index in range(RECORDS):
            await producer.send_and_wait("aio", str(index).encode(), partition=index % 2)
    consumer = aiokafka.AIOKafkaConsumer(
        "aio", bootstrap_servers=bootstrap, auto_offset_reset="earliest", **GROUP, **PATIENT
    )
    writer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id="copier",
        transaction_timeout_ms=5000,
        **PATIENT,
    )
    await consumer.start()
    await writer.start()
    copied, is_killed = 0, False
    while copied < RECORDS:
        batches = await consumer.getmany(timeout_ms=500, max_records=7)
        if not batches:
            continue
        async with writer.transaction():
            for place, records in batches.items():
                for record in records:
                    await writer.send("copied", record.value, partition=place.partition)
            if copied >= RECORDS // 2 and not is_killed:
                cluster.simulation.kill("broker-1")
                asyncio.get_running_loop().call_later(1, cluster.simulation.restart, "broker-1")
                is_killed = True
            ends = {place: records[-1].offset + 1 for place, records in batches.items()}
            await writer.send_offsets_to_transaction(ends, "copiers")
        copied += sum(map(len, batches.values()))
    committed = [await consumer.committed(TopicPartition("aio", number)) for number in range(2)]
    await consumer.stop()
    await writer.stop()
    assert is_killed and committed == [RECORDS // 2, RECORDS // 2], (is_killed, committed)
    return await read(bootstrap, "copied", RECORDS)


async def read(bootstrap: str, topic: str, count: int) -> list[str]:
    """Return so many committed records of both partitions of a topic, and any after them."""
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
    found = [(await consumer.getone()).value.decode() for _ in range(count)]
    behind = await consumer.getmany(timeout_ms=1000)
    await consumer.stop()
    return found + [record.value.decode() for records in behind.values() for record in records]


def main(seed: int, program: Program) -> None:
    """Run and print: whether the launcher could pin everything, the digest, the sorted values."""
    with Simulation(seed) as simulation:
        cluster = SimulatedCluster(ClusterSpec(brokers=2, seed=seed, settings=SETTINGS), simulation)
        cluster.start()
        found = simulation.run_until(work(cluster, program), limit_s=300)
        assert found is not None
        print(
            PINNING.is_complete,
            hashlib.sha256(simulation.event_bytes()).hexdigest(),
            ",".join(sorted(found, key=int)),
        )


main(int(sys.argv[1]), {"idempotent": idempotent, "transactions": transactions}[sys.argv[2]])
