# ruff: noqa: E402  (the launcher comes before what it pins)
"""Measures the CPU time of an idle, unmodified aiokafka producer per virtual hour, on three
controllers and three brokers.

python -m tools.bench.aiokafka_hour [SECONDS]
"""

import sys

from kraftsim.world.simulated.launcher import relaunch_pinned

PINNING = relaunch_pinned(sys.orig_argv[1:])  # before aiokafka is imported

import time

import aiokafka

from kraftsim.cluster.administration import create_topic
from kraftsim.cluster.simulation import SimulatedCluster
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.world.simulated import Simulation
from tools.bench.result import Basis, report_cost

CLIENT = "aio-client"


async def begin(cluster: SimulatedCluster) -> aiokafka.AIOKafkaProducer:
    """Start an idempotent producer and let it send one record."""
    bootstrap = ",".join(f"{host}:{port}" for host, port in cluster.addresses)
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    await producer.start()
    await producer.send_and_wait("idle", b"one", partition=0)
    return producer


async def end(producer: aiokafka.AIOKafkaProducer) -> None:
    """Send another record, to show that the producer still works."""
    await producer.send_and_wait("idle", b"two", partition=0)
    await producer.stop()


def cpu_seconds(seconds: float, *, with_producer: bool) -> float:
    """Return the CPU time of an idle cluster for that long."""
    spec = ClusterSpec(controllers=3, brokers=3, settings={"kraftsim.frame.events": "false"})
    with Simulation(1) as simulation:
        cluster = SimulatedCluster(spec, simulation)
        cluster.start()
        simulation.run_until(cluster.wait_until_ready(), limit_s=60)
        simulation.run_until(create_topic(cluster.addresses, "idle", 1))
        client = simulation.add_host(CLIENT, tolerant=True)
        producer = (
            simulation.run_until(simulation.spawn(client, begin(cluster)))
            if with_producer
            else None
        )
        began = time.process_time()
        simulation.run_for(seconds)
        spent = time.process_time() - began
        if producer is not None:
            simulation.run_until(simulation.spawn(client, end(producer)))
    return spent


def main() -> None:
    """Measure both and print them."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3600.0
    alone = cpu_seconds(seconds, with_producer=False)
    together = cpu_seconds(seconds, with_producer=True)
    for name, what, spent in (
        ("alone", "no client", alone),
        ("aiokafka", "an idle aiokafka producer", together),
    ):
        report_cost(
            f"idle.hour.{name}",
            f"{seconds:.0f} virtual seconds of idle 3 + 3 nodes and {what}",
            "CPU s",
            [spent],
            basis=Basis.CPU,
        )
    print(f"pinned: {PINNING.is_complete}")


main()
