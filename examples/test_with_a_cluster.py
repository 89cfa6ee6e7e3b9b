"""A test of an application: one broker, one controller, an idempotent producer and a consumer.

The pytest plug-in of kraftsim provides `kraftsim_cluster`. Run: pytest
examples/test_with_a_cluster.py
"""

import pytest
from confluent_kafka import Consumer, Producer

from kraftsim.cluster.embedded import EmbeddedCluster

LINES = [b"to be", b"or not", b"to be"]


@pytest.mark.interop
@pytest.mark.kraftsim(brokers=1, settings={"num.partitions": "1"})
def test_what_is_produced_is_consumed_in_order(kraftsim_cluster: EmbeddedCluster) -> None:
    """Produce three records with idempotence and read them back."""
    producer = Producer(
        {"bootstrap.servers": kraftsim_cluster.bootstrap, "enable.idempotence": True}
    )
    for line in LINES:
        producer.produce("lines", line)
    assert producer.flush(20) == 0

    consumer = Consumer(
        {
            "bootstrap.servers": kraftsim_cluster.bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["lines"])
    read: list[bytes | None] = []
    for _ in range(100):
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            read.append(message.value())
        if len(read) == len(LINES):
            break
    consumer.close()
    assert read == LINES
