# ruff: noqa: E402  (the launcher comes before what it pins)
"""A program of its own: an unmodified aiokafka producer and consumer inside virtual time. Prints the digest of the event log, and what was read.

python tests/simulate/aiokafka_program.py SEED
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kraftsim.world.simulated.launcher import relaunch_pinned

PINNING = relaunch_pinned(sys.orig_argv[1:])  # before aiokafka is imported

import hashlib

import aiokafka
from aiokafka.structs import TopicPartition

from kraftsim.cluster.simulation import SimulatedCluster
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.cluster.topics import create_topic
from kraftsim.world.simulated import Simulation

RECORDS = 60


async def work(cluster: SimulatedCluster) -> list[str]:
    """Send numbered records while a connection is cut and a broker is killed and restarted; return what a consumer by assignment reads."""
    await cluster.wait_until_ready()
    await create_topic(cluster.addresses, "aio", 2)
    simulation = cluster.simulation
    client = simulation.add_host("aio-client")
    return await simulation.spawn(client, use_aiokafka(cluster))


async def use_aiokafka(cluster: SimulatedCluster) -> list[str]:
    """Everything that aiokafka does, on a host of its own."""
    bootstrap = ",".join(f"{host}:{port}" for host, port in cluster.addresses)
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, request_timeout_ms=5000, retry_backoff_ms=50)
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
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    await consumer.start()
    consumer.assign([TopicPartition("aio", 0), TopicPartition("aio", 1)])
    read = [(await consumer.getone()).value.decode() for _ in range(RECORDS)]
    await consumer.stop()
    return read


def main(seed: int) -> None:
    """Run and print: whether the launcher could pin everything, the digest, the sorted values."""
    with Simulation(seed) as simulation:
        spec = ClusterSpec(brokers=2, seed=seed, settings={"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"})
        cluster = SimulatedCluster(spec, simulation)
        cluster.start()
        read = simulation.run_until(work(cluster), limit_s=300)
        assert read is not None
        print(PINNING.is_complete, hashlib.sha256(simulation.event_bytes()).hexdigest(), ",".join(sorted(read, key=int)))


main(int(sys.argv[1]))
