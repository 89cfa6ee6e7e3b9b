"""librdkafka #5456, #5511: send_offsets_to_transaction ignores its time-out while the coordinator
of the group is down.

    python examples/client_defects/librdkafka_5456.py

Two brokers of kraftsim in this process, over real sockets. The transaction coordinator and the
topic are on one, the coordinator of the group is on the other one. That is killed in the middle of
the transaction, and leaves the metadata. The call has a time-out of two seconds.
Exits 0 if it has not returned after twenty, 1 if it has: then the defect is mended.
"""

import sys
import threading
import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition, libversion

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.group_client import find_coordinator
from kraftsim.conformance.target import Target
from kraftsim.conformance.transaction_client import find_transaction_coordinator

BROKERS = 2
TIMEOUT_SECONDS, LIMIT_SECONDS = 2.0, 20.0
GONE_SECONDS = 4.0
"""After the session timeout of the killed broker, until clients have new metadata."""
SETTINGS = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "2000",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
QUICK = {"topic.metadata.refresh.interval.ms": 1000, "log_level": 0}


def names(word: str) -> Iterator[str]:
    """Yield names for a group or a transactional id."""
    return (f"{word}-{number}" for number in range(1000))


def seconds_of_a_call(cluster: EmbeddedCluster) -> float | None:
    """Return how long the call takes; None if it does not return in time."""
    target = Target(cluster.bootstrap.partition(",")[0])
    topic = target.topic()
    transactional_id = next(
        each for each in names("copy") if find_transaction_coordinator(target, each) == topic.leader
    )
    group = next(each for each in names("group") if find_coordinator(target, each) != topic.leader)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, **QUICK})
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": transactional_id, **QUICK}
    )
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(topic.name, b"x")
    producer.flush(10)
    offsets = [TopicPartition(topic.name, 0, 1)]
    members = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction(offsets, members, 10)  # the coordinator is remembered
    number = 3 - topic.leader_id
    cluster.kill(f"broker-{number}")
    time.sleep(GONE_SECONDS)
    took: list[float] = []

    def call() -> None:
        began = time.monotonic()
        try:
            producer.send_offsets_to_transaction(offsets, members, TIMEOUT_SECONDS)
        except KafkaException as error:
            print(f"send_offsets_to_transaction: {error}")
        took.append(time.monotonic() - began)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(LIMIT_SECONDS)
    return took[0] if took else None


def main() -> int:
    """Call, and print how long it took."""
    spec = ClusterSpec(brokers=BROKERS, port=free_port_range(BROKERS), settings=SETTINGS)
    with EmbeddedCluster(spec) as cluster:
        seconds = seconds_of_a_call(cluster)
    took = f"no result after {LIMIT_SECONDS:g} s" if seconds is None else f"{seconds:.1f} s"
    print(f"librdkafka {libversion()[0]}, time-out {TIMEOUT_SECONDS:g} s: {took}", flush=True)
    return 0 if seconds is None else 1


if __name__ == "__main__":
    sys.exit(main())
