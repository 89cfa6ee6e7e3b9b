"""Measures how long a producer waits when its partition leader is killed: from kill -9 to the first
record acknowledged by the next leader.

python -m tools.bench.bench_leader_failover [--rounds 2]

Three brokers, three replicas, min.insync.replicas=2; the broker session timeout of both clusters is
3 s instead of 9. librdkafka, idempotent, acks=all; a record every 5 ms to the single partition. A
killed broker stays down; each round has its own cluster.
"""

import argparse
import sys
import time
from collections import defaultdict

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from tools.bench.clusters import Cluster, cluster
from tools.bench.result import report_cost
from tools.bench.subjects import APACHE_KAFKA, KRAFTSIM, subjects

TOPIC = "failover"
SETTINGS = {
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
STEADY_SECONDS = 1.5
GIVE_UP_SECONDS = 60.0
EVERY_SECONDS = 0.005


def silence(running: Cluster) -> float:
    """Return the seconds without an acknowledgement."""
    acknowledged: list[tuple[float, float]] = []
    """When a record was produced, and when it was acknowledged."""

    def report(
        trouble: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
    ) -> None:
        assert trouble is None, trouble
        value = message.value()
        assert value is not None, "a record has its timestamp"
        acknowledged.append((float(value), time.perf_counter()))

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": running.bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 0,
            "log_level": 0,
        }
    )

    def write(until: float) -> None:
        while time.perf_counter() < until:
            producer.produce(
                TOPIC, f"{time.perf_counter():<100.9f}".encode(), partition=0, on_delivery=report
            )
            producer.poll(EVERY_SECONDS)

    began = time.perf_counter()
    while not acknowledged:
        assert time.perf_counter() - began < GIVE_UP_SECONDS, "nothing is acknowledged"
        write(time.perf_counter() + 0.1)
    write(time.perf_counter() + STEADY_SECONDS)
    leader = leader_of(running)
    killed = time.perf_counter()
    running.kill(leader)
    gone = time.perf_counter()
    while not any(sent > gone for sent, _ in acknowledged[-500:]):
        assert time.perf_counter() - killed < GIVE_UP_SECONDS, "the partition has no leader"
        write(time.perf_counter() + 0.05)
    first = next(acknowledged_at for sent, acknowledged_at in acknowledged if sent > gone)
    left = producer.flush(30)
    assert not left, f"{left} records are not acknowledged"
    return first - killed


def leader_of(running: Cluster) -> int:
    """Return the leader of the partition."""
    admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
    described = admin.list_topics(TOPIC, timeout=30)
    return described.topics[TOPIC].partitions[0].leader


def main() -> int:
    """Measure every subject in turn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(options.rounds):
        for name in subjects():
            with cluster(name, 3, SETTINGS) as running:
                admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
                admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(30)
                found[name].append(silence(running))
                print(f"  {name:20s} {found[name][-1]:.2f} s", flush=True)
    report_cost(
        "leader_failover.next_record",
        "kill -9 of a partition leader until the next acknowledged record, session of 3 s",
        "s",
        found[KRAFTSIM],
        peer=APACHE_KAFKA,
        peer_values=found[APACHE_KAFKA],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
