"""Measures p50 and p99 of acks=all at 1,000 records per second, with one replica and three,
compared with Apache Kafka 3.9.1.

python -m tools.bench.bench_latency [--seconds 6] [--rate 1000] [--replicas 1,3]

librdkafka, idempotent, no linger; records of 100 bytes, produced one by one at a fixed rate. The
latency is the time from the produce call to the delivery report.
"""

import argparse
import sys
import time
from statistics import quantiles

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from tools.bench.clusters import Cluster, cluster
from tools.bench.result import report_cost
from tools.bench.subjects import APACHE_KAFKA, KRAFTSIM, subjects

TOPIC = "latency"
PARTITIONS = 4
WARM_UP_SECONDS = 1.5


def delays_ms(running: Cluster, rate: int, seconds: float) -> list[float]:
    """Return the latency of each record after the warm-up."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": running.bootstrap,
            "log_level": 0,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 0,
        }
    )
    found: list[float] = []
    began = time.perf_counter()

    def report(
        trouble: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
    ) -> None:
        assert trouble is None, trouble
        value = message.value()
        assert value is not None, "a record has its timestamp"
        sent = float(value[:24])
        if sent - began > WARM_UP_SECONDS:
            found.append((time.perf_counter() - sent) * 1000)

    for number in range(int(rate * (seconds + WARM_UP_SECONDS))):
        due = began + number / rate
        while (now := time.perf_counter()) < due:
            producer.poll(min(due - now, 0.0005))
        producer.produce(
            TOPIC,
            f"{time.perf_counter():<24.9f}".encode().ljust(100),
            partition=number % PARTITIONS,
            on_delivery=report,
        )
    left = producer.flush(60)
    assert not left, f"{left} records are not acknowledged"
    return found


def main() -> int:
    """Measure every subject in turn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--replicas", default="1,3")
    options = parser.parse_args()
    for replicas in map(int, options.replicas.split(",")):
        found: dict[str, list[float]] = {}
        for name in subjects():
            with cluster(
                name,
                1 if replicas == 1 else 3,
                {"min.insync.replicas": "2"} if replicas == 3 else {},
            ) as running:
                admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
                admin.create_topics([NewTopic(TOPIC, PARTITIONS, replicas)])[TOPIC].result(30)
                found[name] = delays_ms(running, options.rate, options.seconds)
        percentiles = {name: quantiles(each, n=100) for name, each in found.items()}
        for percent in (50, 99):
            report_cost(
                f"latency.p{percent}.rf{replicas}",
                f"p{percent} of acks=all at {options.rate} records/s, RF {replicas}",
                "ms",
                [percentiles[KRAFTSIM][percent - 1]],
                peer=APACHE_KAFKA,
                peer_values=[
                    percentiles[name][percent - 1] for name in percentiles if name == APACHE_KAFKA
                ],
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
