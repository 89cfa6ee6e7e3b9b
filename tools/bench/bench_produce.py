"""Measures how fast librdkafka produces 1 KiB records, with and without idempotence, acks=all.

python -m tools.bench.bench_produce [--records 300000] [--rounds 3]
"""

import argparse
import sys
import time
from collections import defaultdict

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from tools.bench.result import report_rate
from tools.bench.subjects import APACHE_KAFKA, KRAFTSIM, subject, subjects

RECORD_BYTES = 1024
PARTITIONS = 4
MEGABYTE = 1_000_000


def produce(bootstrap: str, topic: str, records: int, idempotent: bool) -> float:
    """Return MB/s from the first produce call to the last acknowledgement."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": idempotent,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 400_000,
        }
    )
    payload = bytes(index * 131 % 251 for index in range(RECORD_BYTES))
    failed = 0

    def delivered(trouble: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
        nonlocal failed
        failed += trouble is not None

    began = time.perf_counter()
    for index in range(records):
        while True:
            try:
                producer.produce(
                    topic, payload, partition=index % PARTITIONS, on_delivery=delivered
                )
                break
            except BufferError:
                producer.poll(0.05)
        if index % 1000 == 0:
            producer.poll(0)
    producer.flush()
    took = time.perf_counter() - began
    assert not failed, f"{failed} records failed"
    return records * RECORD_BYTES / MEGABYTE / took


def main() -> int:
    """Measure every subject in turn, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rates: dict[tuple[str, bool], list[float]] = defaultdict(list)
    for name in subjects():
        with subject(name) as bootstrap:
            admin = AdminClient({"bootstrap.servers": bootstrap})
            admin.create_topics([NewTopic("bench", PARTITIONS, 1)])["bench"].result(30)
            produce(bootstrap, "bench", options.records // 3, True)  # warm-up, not counted
            for _ in range(options.rounds):
                for idempotent in (False, True):
                    rate = produce(bootstrap, "bench", options.records, idempotent)
                    rates[name, idempotent].append(rate)
                    print(
                        f"{name:20s} {'idempotent' if idempotent else 'plain':10s}: {rate:7.1f} "
                        "MB/s",
                        flush=True,
                    )
    for idempotent in (False, True):
        kind = "idempotent" if idempotent else "plain"
        report_rate(
            f"produce.{kind}",
            f"librdkafka, 1 KiB records, acks=all, {kind}",
            "MB/s",
            rates[KRAFTSIM, idempotent],
            peer=APACHE_KAFKA,
            peer_values=rates[APACHE_KAFKA, idempotent],
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
