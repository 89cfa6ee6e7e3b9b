"""Measures a whole migration from ZooKeeper to KRaft: the time of each phase and producer stalls,
compared with Apache Kafka.

    python -m tools.bench.bench_migration [--partitions 1000] [--brokers 3] [--controllers 3]

Brokers in ZooKeeper mode, three replicas of each partition; librdkafka, idempotent, acks=all, a
record every 5 ms, to the partitions of one topic in turn. Controllers are started; brokers are
restarted for migration, one after the other, each when all replicas are in sync again; after the
last one the controllers take over; brokers are restarted as KRaft brokers, then controllers without
the migration setting. A stall is the time from producing a record to its acknowledgement; the
longest one of each phase is printed. In the end all records are read: none may be missing,
duplicated or reordered. The times include the restarts of brokers with their controlled shutdowns.
"""

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from tools.bench.migrated_clusters import MigratedCluster, Node, migrated_cluster
from tools.bench.result import report_cost
from tools.bench.subjects import APACHE_KAFKA, KRAFTSIM, subjects

WRITTEN = "written"
PER_TOPIC = 10
REPLICAS = 3
EVERY_SECONDS = 0.005
AT_ONCE = 10
"""The number of topics in one CreateTopics request."""
GIVE_UP_SECONDS = 600.0
LOOK_SECONDS = 0.2
SETTINGS = {"min.insync.replicas": "2"}
QUIET = {"log_level": 0}
AFTERWARDS = "after-all"


class Writer:
    """Produces all the time in its own thread, and records the latency of each record."""

    def __init__(self, bootstrap: str) -> None:
        self.sent = [0] * PER_TOPIC
        self.stalls: list[tuple[float, float]] = []
        """When a record was acknowledged, and its latency."""
        self._stop = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                **QUIET,
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "message.timeout.ms": 300_000,
            }
        )
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def longest(self, since: float, until: float) -> float:
        """Return the longest stall among the records that were acknowledged in a span of time."""
        return max(
            (took for received, took in list(self.stalls) if since <= received <= until),
            default=0.0,
        )

    def end(self) -> None:
        """Stop, and flush the records in flight."""
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(60)
        assert not left, f"{left} records are not acknowledged"

    def _write(self) -> None:
        number = 0
        while not self._stop.is_set():
            partition = number % PER_TOPIC
            value = f"{self.sent[partition]} {time.perf_counter():.9f}".encode()
            self._producer.produce(
                WRITTEN, value, partition=partition, on_delivery=self._on_delivery
            )
            self.sent[partition] += 1
            number += 1
            self._producer.poll(EVERY_SECONDS)

    def _on_delivery(
        self, trouble: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
    ) -> None:
        assert trouble is None, trouble
        value, now = message.value(), time.perf_counter()
        assert value is not None, "a record has its timestamp"
        self.stalls.append((now, now - float(value.split()[1])))


@dataclass(slots=True)
class Watch:
    """The times of migration steps in ZooKeeper, polled every 10 ms."""

    claimed_at: float = 0.0
    copy_ended_at: float = 0.0
    dual_at: float = 0.0
    trouble: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self, port: int) -> None:
        """Poll until dual write starts."""
        from tests.apache_kafka.migration_nodes import Znodes

        znodes, copied_until = Znodes(port), -1
        while not self._stop.wait(0.01) and not self.dual_at:
            try:
                controller = znodes.get("/controller")
                if (
                    not self.claimed_at
                    and controller is not None
                    and json.loads(controller).get("kraftControllerEpoch", -1) >= 0
                ):
                    self.claimed_at = time.perf_counter()
                until = znodes.migrated_until() if self.claimed_at else -1
                if until > 0 and not self.copy_ended_at:
                    self.copy_ended_at, copied_until = time.perf_counter(), until
                elif self.copy_ended_at and until > copied_until + 1:
                    self.dual_at = time.perf_counter()
            except OSError as trouble:
                self.trouble.append(str(trouble))

    def end(self) -> None:
        """Stop polling."""
        self._stop.set()


@dataclass(slots=True)
class Times:
    """The duration and the longest stall of each phase of a migration."""

    writer: Writer
    rows: list[tuple[str, float, float]] = field(default_factory=list)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure one phase."""
        began = time.perf_counter()
        yield
        ended = time.perf_counter()
        self.rows.append((name, ended - began, self.writer.longest(began, ended)))
        print(
            f"    {name:45s} {ended - began:7.2f} s   longest stall {self.rows[-1][2]:6.2f} s",
            flush=True,
        )


def migrate(nodes: MigratedCluster, partitions: int) -> Times:
    """Migrate a cluster under load, and return the time of each phase."""
    from tests.apache_kafka.migration_nodes import Znodes

    until(lambda: is_led(nodes), "there is a controller")
    admin = AdminClient({**QUIET, "bootstrap.servers": nodes.bootstrap})
    began = time.perf_counter()
    topics = [WRITTEN, *(f"topic-{number}" for number in range(1, partitions // PER_TOPIC))]
    for first in range(0, len(topics), AT_ONCE):
        create(admin, topics[first : first + AT_ONCE])

    def in_sync() -> bool:
        return is_in_sync(admin, len(topics), len(nodes.brokers))

    until(in_sync, "all replicas are in sync")
    print(
        f"    {partitions} partitions in ZooKeeper mode after {time.perf_counter() - began:.1f} s",
        flush=True,
    )
    watch, writer = Watch(), Writer(nodes.bootstrap)
    until(lambda: len(writer.stalls) > 200, "records are acknowledged")
    times = Times(writer)
    threading.Thread(target=watch.run, args=(nodes.zookeeper_port,), daemon=True).start()
    with times.phase("controllers up"):
        nodes.start_controllers(Znodes(nodes.zookeeper_port).cluster_id())
    for place, node in enumerate(nodes.brokers, 1):
        with times.phase(f"broker {place} is ready to migrate"):
            restart(node, nodes.let_migrate)
            if node is nodes.brokers[-1]:
                until(lambda: watch.dual_at, "dual write has started")
            until(in_sync, "all replicas are in sync")
    watch.end()
    print_part(writer, "claim to end of copy", watch.claimed_at, watch.copy_ended_at)
    print_part(writer, "end of copy to dual write", watch.copy_ended_at, watch.dual_at)
    for place, node in enumerate(nodes.brokers, 1):
        with times.phase(f"broker {place} is a KRaft broker"):
            restart(node, nodes.let_be_kraft)
            until(in_sync, "all replicas are in sync")
    with times.phase("controllers finalize"):
        for node in nodes.controllers:
            restart(node, nodes.let_end)
        create(admin, [AFTERWARDS])
    writer.end()
    require_all(nodes.bootstrap, writer.sent)
    return times


def print_part(writer: Writer, what: str, since: float, to: float) -> None:
    """Print the duration of a part of a phase."""
    print(
        f"      of which {what:33s} {to - since:7.2f} s   longest stall "
        f"{writer.longest(since, to):6.2f} s",
        flush=True,
    )


def create(admin: AdminClient, topics: list[str]) -> None:
    """Create topics, and retry after timeouts: the topics may exist by then."""
    give_up_at = time.monotonic() + GIVE_UP_SECONDS
    missing = topics
    while missing:
        asked = admin.create_topics(
            [NewTopic(name, PER_TOPIC, REPLICAS) for name in missing],
            operation_timeout=30,
            request_timeout=60,
        )
        missing = []
        for name, answer in asked.items():
            try:
                answer.result(GIVE_UP_SECONDS)
            except confluent_kafka.KafkaException as refused:
                if refused.args[0].code() != confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                    assert time.monotonic() < give_up_at, f"{name}: {refused}"
                    missing.append(name)


def restart(node: Node, change: Callable[[Node], None]) -> None:
    """Stop a node, change it, start it, and wait until it responds."""
    node.stop()
    change(node)
    node.launch()
    node.wait()


def is_led(nodes: MigratedCluster) -> bool:
    """Return whether all brokers have metadata of each other and of a controller: librdkafka
    refreshes only now and then.
    """
    try:
        answer = AdminClient({**QUIET, "bootstrap.servers": nodes.bootstrap}).list_topics(
            timeout=10
        )
    except confluent_kafka.KafkaException:
        return False
    return len(answer.brokers) == len(nodes.brokers) and answer.controller_id >= 0


def is_in_sync(admin: AdminClient, topics: int, brokers: int) -> bool:
    """Return whether all brokers are up and all replicas in sync."""
    try:
        answer = admin.list_topics(timeout=10)
    except confluent_kafka.KafkaException:
        return False
    known = [topic for name, topic in answer.topics.items() if not name.startswith("__")]
    all_there = len(answer.brokers) == brokers and len(known) == topics
    return all_there and all(
        len(each.isrs) == REPLICAS and each.leader >= 0
        for topic in known
        for each in topic.partitions.values()
    )


def until(holds: Callable[[], object], what: str) -> None:
    """Wait until a condition holds."""
    give_up_at = time.monotonic() + GIVE_UP_SECONDS
    while not holds():
        assert time.monotonic() < give_up_at, f"not within {GIVE_UP_SECONDS:g} s: {what}"
        time.sleep(LOOK_SECONDS)


def require_all(bootstrap: str, sent: list[int]) -> None:
    """Read everything back: each partition must have its records once, in order."""
    consumer = confluent_kafka.Consumer(
        {**QUIET, "bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False}
    )
    consumer.assign(
        [
            confluent_kafka.TopicPartition(WRITTEN, number, confluent_kafka.OFFSET_BEGINNING)
            for number in range(PER_TOPIC)
        ]
    )
    found: list[list[int]] = [[] for _ in sent]
    give_up_at = time.monotonic() + 120
    while sum(map(len, found)) < sum(sent) and time.monotonic() < give_up_at:
        for message in consumer.consume(1000, 0.5):
            number, value = message.partition(), message.value()
            assert number is not None and value is not None, message.error()
            found[number].append(int(value.split()[0]))
    assert not consumer.consume(1, 0.5), "nothing is duplicated"
    consumer.close()
    assert found == [list(range(count)) for count in sent], (
        "nothing is lost, duplicated or reordered"
    )


def report_times(ours: Times, theirs: Times | None, partitions: int) -> None:
    """Report the duration and the longest stall of each phase and of all; no record was lost,
    duplicated or reordered, or the migration would have failed.
    """
    rows = {name: (seconds, stall) for name, seconds, stall in ours.rows}
    peers = {} if theirs is None else {name: each for name, *each in theirs.rows}
    rows["all phases"] = (
        sum(s for s, _ in rows.values()),
        max(stall for _, stall in rows.values()),
    )
    if peers:
        both = list(peers.values())
        peers["all phases"] = [sum(s for s, _ in both), max(stall for _, stall in both)]
    for name, values in rows.items():
        for place, figure in enumerate(("seconds", "stall")):
            report_cost(
                f"migration.{figure}.{name.replace(' ', '_').lower()}",
                f"{name}, {partitions} partitions{', longest stall' * place}",
                "s",
                [values[place]],
                peer=APACHE_KAFKA,
                peer_values=[peers[name][place]] if name in peers else (),
            )


def main() -> int:
    """Migrate one cluster of each kind."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--controllers", type=int, default=3)
    parser.add_argument("--only", choices=subjects(), help="one of them, instead of both")
    options = parser.parse_args()
    found: dict[str, Times] = {}
    for name in [options.only] if options.only else reversed(subjects()):
        print(f"  {name}", flush=True)
        with migrated_cluster(
            name, brokers=options.brokers, controllers=options.controllers, settings=SETTINGS
        ) as nodes:
            found[name] = migrate(nodes, options.partitions)
    if KRAFTSIM in found:
        report_times(found[KRAFTSIM], found.get(APACHE_KAFKA), options.partitions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
