"""Load on a cluster from real clients: idempotent and transactional producers, copies with offsets
in transactions, groups, share groups, compressed batches, Kafka's own Java clients.
"""

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ElectionType,
    KafkaError,
    KafkaException,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from kraftsim.conformance.peer import Peer
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.apache_kafka.class_path import NEWEST_RELEASE
from tools.audit_corpus.brokers import KRAFT, CorpusCluster, is_of_4

QUIET: Final = {"log_level": 0}
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
SECONDS: Final = 60.0
TABLE: Final = "table"
ORDERS, COPIES, PLAIN, CODED, SHORT, STAMPED, SHARED = (
    "orders",
    "copies",
    "plain",
    "coded",
    "short",
    "stamped",
    "shared",
)
PARTITIONS: Final = {
    ORDERS: 3,
    COPIES: 2,
    PLAIN: 2,
    CODED: 2,
    TABLE: 2,
    SHORT: 1,
    STAMPED: 1,
    SHARED: 2,
}


def wait_until(holds: Callable[[], object], what: str, seconds: float = SECONDS) -> None:
    """Wait until a condition is true."""
    give_up_at = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < give_up_at, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)


class Load:
    """Clients of one cluster; all randomness comes from `seed`.

    `transactions` is false for the early access of KRaft (2.8), which has none. `small` are the
    configurations that make the segments of topics small.
    """

    def __init__(
        self,
        cluster: CorpusCluster,
        *,
        seed: int = 1,
        transactions: bool = True,
        small: Mapping[str, str] | None = None,
    ) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.transactions = transactions
        self.small = dict(
            small
            if small is not None
            else {"segment.ms": "1500", "internal.segment.bytes": "8192"}
            if is_of_4(cluster.release)
            else {"segment.bytes": "8192"}
        )
        self.admin = AdminClient({**QUIET, "bootstrap.servers": cluster.bootstrap})
        self._numbers = itertools.count()

    # --- administration -------------------------------------------------------------------------

    def create_topics(self, names: Iterable[str] = tuple(PARTITIONS)) -> None:
        """Create the topics of the load."""
        special = {
            TABLE: {
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "0.01",
                "segment.ms": "1000",
                "delete.retention.ms": "500",
            },
            SHORT: {"retention.bytes": "50000", "segment.ms": "800"},
            STAMPED: {"message.timestamp.type": "LogAppendTime"},
        }
        for name in names:
            self.create(name, PARTITIONS[name], {**self.small, **special.get(name, {})})

    def create(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        replicas: int = 0,
        assignment: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Create a topic and wait until it has leaders."""
        factor = replicas or min(3, self.cluster.size)
        config = dict(configs or {})
        topic = (
            NewTopic(
                name,
                len(assignment),
                replica_assignment=[list(row) for row in assignment],
                config=config,
            )
            if assignment is not None
            else NewTopic(name, partitions, factor, config=config)
        )

        count = partitions if assignment is None else len(assignment)

        def has_leaders() -> bool:
            found = self.leaders(name)
            return len(found) == count and -1 not in found.values()

        def is_created() -> bool:
            try:
                self.admin.create_topics([topic], request_timeout=20)[name].result(30)
            except KafkaException as failure:
                code = failure.args[0].code()
                if code == KafkaError.INVALID_CONFIG and "internal.segment.bytes" in config:
                    del config["internal.segment.bytes"]
                # a topic of that name may still be waiting for its deletion
                return code == KafkaError.TOPIC_ALREADY_EXISTS and has_leaders()
            wait_until(has_leaders, f"{name} has leaders")
            return True

        wait_until(is_created, f"{name} can be created")

    def delete(self, *names: str) -> None:
        """Delete topics and wait until they are gone from the metadata."""
        wait_until(lambda: all(self.leaders(name) for name in names), f"{names} are known")
        for future in self.admin.delete_topics(list(names)).values():
            with contextlib.suppress(KafkaException):  # a retry finds nothing any more
                future.result(30)
        wait_until(lambda: not any(self.leaders(name) for name in names), f"{names} are deleted")

    def configure(self, topic: str, **values: str) -> None:
        """Set configurations of a topic; `_` stands for `.`."""
        wait_until(lambda: self.leaders(topic), f"{topic} is known")
        entries = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in values.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        for future in self.admin.incremental_alter_configs([resource]).values():
            future.result(30)

    def delete_records(self, topic: str, *, fraction: float = 0.5) -> None:
        """Delete the first records of every partition."""
        wanted = []
        for number, (first, end) in self.ends(topic).items():
            wanted.append(TopicPartition(topic, number, first + int((end - first) * fraction)))
        for future in self.admin.delete_records(wanted).values():
            future.result(30)

    def elect(self, topic: str, *, unclean: bool = False) -> None:
        """Elect the preferred leaders, or unclean ones."""
        kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        wanted = [TopicPartition(topic, number) for number in self.leaders(topic)]
        with contextlib.suppress(KafkaException):
            self.admin.elect_leaders(kind, wanted).result(30)

    def leaders(self, topic: str) -> dict[int, int]:
        """Return the leader of each partition, as any broker that responds knows it."""
        for number in self.cluster.numbers:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
            with contextlib.suppress(OSError, TimeoutError):
                with Peer.at(self.cluster.address(number), timeout_seconds=5) as peer:
                    answer = peer.ask(request, 5, MetadataResponse)
                return {
                    each.partition_index: each.leader_id for each in answer.topics[0].partitions
                }
        return {}

    def ends(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return the first and the end offset of each partition."""
        consumer = Consumer(
            {**QUIET, "bootstrap.servers": self.cluster.bootstrap, "group.id": "unused"}
        )
        try:
            return {
                number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=20)
                for number in self.leaders(topic)
            }
        finally:
            consumer.close()

    def reassign(self, topic: str, replicas: Sequence[int]) -> None:
        """Move every partition of a topic to these replicas, and wait until they are in sync."""
        rows = [
            ReassignablePartition(partition_index=number, replicas=list(replicas))
            for number in self.leaders(topic)
        ]
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=topic, partitions=rows)], timeout_ms=30_000
        )
        with Peer.at(self.controller()) as peer:
            answer = peer.ask(request, 0, AlterPartitionReassignmentsResponse)
        assert answer.error_code == 0, answer
        wait_until(
            lambda: all(
                set(each[0]) == set(each[1]) == set(replicas)
                for each in self.replicas(topic).values()
            ),
            f"{topic} is reassigned",
        )

    def replicas(self, topic: str) -> dict[int, tuple[list[int], list[int]]]:
        """Return replicas and in-sync replicas of each partition."""
        answer = self._metadata(topic)
        return {
            each.partition_index: (list(each.replica_nodes), list(each.isr_nodes))
            for each in answer.topics[0].partitions
        }

    def controller(self) -> str:
        """Return the address of the controller; in KRaft mode any broker forwards to it."""
        answer = self._metadata(PLAIN)
        return self.cluster.address(answer.controller_id)

    def move_directory(self, number: int, topic: str, target: str) -> None:
        """Move the replicas of a topic on one broker to another of its log directories."""
        row = AlterReplicaLogDirTopic(name=topic, partitions=list(self.leaders(topic)))
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=target, topics=[row])])
        with Peer.at(self.cluster.address(number)) as peer:
            answer = peer.ask(request, 1, AlterReplicaLogDirsResponse)
        for found in answer.results:
            assert not any(each.error_code for each in found.partitions), answer

    def _metadata(self, topic: str) -> MetadataResponse:
        running = next(
            number for number in self.cluster.numbers if self.cluster.nodes[number - 1].is_running
        )
        with Peer.at(self.cluster.address(running)) as peer:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
            return peer.ask(request, 5, MetadataResponse)

    # --- producers ------------------------------------------------------------------------------

    def value(self, size: int = 0) -> bytes:
        """Return a value that compresses by half."""
        number = next(self._numbers)
        size = size or self.random.randrange(20, 180)
        return b"%08d %s" % (number, self.random.randbytes(size // 2).hex().encode())

    def write(
        self,
        topic: str,
        count: int,
        *,
        keys: int = 0,
        tombstones: float = 0.0,
        partition: int | None = None,
        headers: bool = True,
        **config: object,
    ) -> None:
        """Write records with a producer of its own; idempotent unless `config` says otherwise.

        Message formats before 2 have no headers.
        """
        failures: list[KafkaError] = []
        producer = Producer(
            {
                **QUIET,
                "bootstrap.servers": self.cluster.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 20,
                **{key.replace("_", "."): value for key, value in config.items()},
            }
        )
        partitions = PARTITIONS.get(topic, 1)
        for index in range(count):
            key = b"key-%d" % self.random.randrange(keys) if keys else None
            empty = keys and self.random.random() < tombstones
            producer.produce(
                topic,
                None if empty else self.value(),
                key,
                partition=partition if partition is not None else index % partitions,
                headers=[("index", b"%d" % index)] if headers and index % 7 == 0 else None,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
            producer.poll(0)
        assert producer.flush(SECONDS) == 0, f"records to {topic} are still under way"
        assert not failures, failures[:2]

    def write_coded(self, count: int = 60) -> None:
        """Write with every codec."""
        for codec in CODECS:
            self.write(CODED, count, compression_type=codec)

    def transact(
        self,
        name: str,
        transactions: int,
        *,
        abort_every: int = 3,
        topics: Sequence[str] = (ORDERS, COPIES),
        count: int = 8,
    ) -> None:
        """Run transactions of one transactional id; every n-th is aborted."""
        producer = self.transactional(name)
        for number in range(transactions):
            producer.begin_transaction()
            for topic in topics:
                for index in range(count):
                    producer.produce(topic, self.value(), partition=index % PARTITIONS[topic])
            if abort_every and number % abort_every == abort_every - 1:
                producer.flush(SECONDS)
                producer.abort_transaction(SECONDS)
            else:
                producer.commit_transaction(SECONDS)

    def transactional(self, name: str, timeout_ms: int = 60_000) -> Producer:
        """Return a transactional producer that is initialised."""
        producer = Producer(
            {
                **QUIET,
                "bootstrap.servers": self.cluster.bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 1,
            }
        )
        producer.init_transactions(SECONDS)
        return producer

    def abandon(self, name: str, *, timeout_ms: int = 2000) -> None:
        """Leave a transaction without an end: its coordinator aborts it after its timeout."""
        producer = self.transactional(name, timeout_ms)
        producer.begin_transaction()
        for number in range(PARTITIONS[ORDERS]):
            producer.produce(ORDERS, self.value(), partition=number)
        producer.flush(SECONDS)
        producer.purge()

    def fence(self, name: str) -> None:
        """Begin a transaction, and take its transactional id over: the coordinator aborts it."""
        first = self.transactional(name)
        first.begin_transaction()
        first.produce(ORDERS, self.value(), partition=0)
        first.flush(SECONDS)
        second = self.transactional(name)
        second.begin_transaction()
        second.produce(ORDERS, self.value(), partition=0)
        second.commit_transaction(SECONDS)

    def copy_exactly_once(
        self, group: str, batches: int = 6, *, abort_every: int = 4, source: str = ORDERS
    ) -> int:
        """Consume, write to another topic and commit offsets, all in transactions; return how many
        records were copied.
        """
        consumer = self.consumer(group, isolation_level="read_committed")
        consumer.subscribe([source])
        producer = self.transactional(f"{group}-copier")
        copied, give_up_at, number = 0, time.monotonic() + 20, 0
        while number < batches and time.monotonic() < give_up_at:
            records = [each for each in consumer.consume(20, 0.5) if each.error() is None]
            if not records:
                continue
            producer.begin_transaction()
            for record in records:
                producer.produce(COPIES, record.value(), partition=(record.offset() or 0) % 2)
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 30
            )
            number += 1
            if abort_every and number % abort_every == 0:
                producer.abort_transaction(SECONDS)
                break
            producer.commit_transaction(SECONDS)
            copied += len(records)
        consumer.close()
        return copied

    def transact_with_aiokafka(self, name: str, transactions: int = 4) -> None:
        """Run transactions of aiokafka, every other one aborted."""
        asyncio.run(self._transact_with_aiokafka(name, transactions))

    async def _transact_with_aiokafka(self, name: str, transactions: int) -> None:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=self.cluster.bootstrap,
            transactional_id=name,
            compression_type="gzip",
        )
        await producer.start()
        try:
            for number in range(transactions):
                await producer.begin_transaction()
                for index in range(6):
                    await producer.send(ORDERS, self.value(), partition=index % 3)
                if number % 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
        finally:
            await producer.stop()

    def write_with_java(self, count: int = 400) -> None:
        """Write with Kafka's performance test (transactional) and verifiable producer."""
        from tests.apache_kafka.harness import run_tool

        release = self.cluster.release
        if release.startswith("2."):
            return
        words = [
            "--topic",
            ORDERS,
            "--num-records",
            str(count),
            "--record-size",
            "100",
            "--throughput",
            "-1",
            "--producer-props",
            f"bootstrap.servers={self.cluster.bootstrap}",
            "compression.type=lz4",
            "batch.size=1000",
            "linger.ms=2",
        ]
        if self.transactions:
            words += ["--transactional-id", "perf", "--transaction-duration-ms", "100"]
        run_tool(release, "producer-performance", *words)
        address = "--broker-list" if release.startswith("3.") else "--bootstrap-server"
        run_tool(
            release,
            "verifiable-producer",
            address,
            self.cluster.bootstrap,
            "--topic",
            PLAIN,
            "--max-messages",
            str(count),
        )

    # --- consumers ------------------------------------------------------------------------------

    def consumer(self, group: str, **config: object) -> Consumer:
        """Return a consumer of a group that commits on request."""
        return Consumer(
            {
                **QUIET,
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                **{key.replace("_", "."): value for key, value in config.items()},
            }
        )

    def consume(
        self, group: str, *topics: str, count: int = 200, seconds: float = 8.0, **config: object
    ) -> int:
        """Read as a member of a group, with commits; return how many records were read."""
        consumer = self.consumer(group, **config)
        consumer.subscribe(list(topics))
        read, give_up_at = 0, time.monotonic() + seconds
        while read < count and time.monotonic() < give_up_at:
            found = [each for each in consumer.consume(50, 0.5) if each.error() is None]
            read += len(found)
            if found:
                consumer.commit(asynchronous=False)
        consumer.close()
        return read

    def read_from_followers(self, topic: str) -> int:
        """Read with the rack of each broker, so that followers serve fetches (KIP-392)."""
        read = 0
        for number in self.cluster.numbers:
            consumer = self.consumer("by-rack", client_rack=f"rack-{number}")
            consumer.assign(
                [TopicPartition(topic, each, OFFSET_BEGINNING) for each in self.leaders(topic)]
            )
            give_up_at = time.monotonic() + 3
            while time.monotonic() < give_up_at and (found := consumer.consume(200, 0.5)):
                read += len(found)
            consumer.close()
        return read

    def share(self, group: str, count: int = 60) -> int:
        """Read as a member of a share group; some records are released or rejected."""
        self._configure_group(group)
        consumer = ShareConsumer(
            {**QUIET, "bootstrap.servers": self.cluster.bootstrap, "group.id": group}
        )
        consumer.subscribe([SHARED])
        read, give_up_at = 0, time.monotonic() + 12
        while read < count and time.monotonic() < give_up_at:
            found = [each for each in consumer.poll(0.5) or [] if each.error() is None]
            read += len(found)
        consumer.close()
        return read

    def _configure_group(self, group: str) -> None:
        entry = ConfigEntry(
            "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
        for future in self.admin.incremental_alter_configs([resource]).values():
            future.result(30)

    # --- all together ---------------------------------------------------------------------------

    def burst(self, round_number: int = 0) -> None:
        """Put a bit of everything on the cluster: a few seconds."""
        has_ids = self.cluster.mode != KRAFT or not self.cluster.release.startswith("2.")
        plain = {} if has_ids else {"enable_idempotence": False}
        self.write(PLAIN, 120, enable_idempotence=False, acks=1)
        self.write(STAMPED, 60, **plain)
        self.write(SHORT, 300, **plain)
        self.write(TABLE, 250, keys=20, tombstones=0.15, **plain)
        for codec in CODECS:
            self.write(CODED, 50, compression_type=codec, **plain)
        self.consume("readers", PLAIN, CODED, count=150)
        if not self.transactions:
            return
        self.transact("transfers", 7)
        self.transact(f"round-{round_number}", 3)
        self.fence("taken-over")
        self.transact_with_aiokafka("aio")
        self.copy_exactly_once("copiers")
        if self.cluster.release == NEWEST_RELEASE:  # 4.1 has share groups as a preview only
            self.write(SHARED, 60)
            self.share("sharers", 40)


@contextlib.contextmanager
def background(load: Load, topic: str = ORDERS) -> Iterator[None]:
    """Write idempotent records and transactions in a thread while the block runs: brokers may come
    and go.
    """
    import threading

    stop = threading.Event()
    outcome: list[str] = []

    def transact() -> None:
        producer = None
        while not stop.is_set():
            try:
                if producer is None:
                    producer = load.transactional("restless")
                producer.begin_transaction()
                for index in range(6):
                    producer.produce(topic, load.value(), partition=index % PARTITIONS[topic])
                producer.commit_transaction(20)
            except KafkaException as failure:
                outcome.append(str(failure))
                error = failure.args[0]
                with contextlib.suppress(KafkaException):
                    if producer is not None and error.txn_requires_abort():
                        producer.abort_transaction(20)
                        continue
                producer = None
            time.sleep(0.05)

    def write() -> None:
        producer = Producer(
            {
                **QUIET,
                "bootstrap.servers": load.cluster.bootstrap,
                "enable.idempotence": load.transactions,
                "message.timeout.ms": 60_000,
            }
        )
        while not stop.is_set():
            producer.produce(topic, load.value())
            producer.poll(0.01)
            time.sleep(0.005)
        producer.flush(30)

    targets = [write, transact] if load.transactions else [write]
    threads = [threading.Thread(target=each, daemon=True) for each in targets]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(40)
