"""Consumer groups of real clients: two members share a topic, one leaves, and the coordinator is
killed. No record is missed.

A record may be read twice if the coordinator was killed between the read and the commit; without a
kill, none is.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Protocol, TypeVar

import kafka
import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from kraftsim.cluster.processes import ProcessCluster
from tests.cluster.running import restart_and_wait, wait_until_known

T = TypeVar("T")

pytestmark = pytest.mark.interop
SECONDS = 30.0
PARTITIONS = 4
SESSION_MS = 6000
QUIET = {"log_level": 0}


class Member(Protocol):
    """One consumer in a group, of any library."""

    def poll(self) -> list[bytes]:
        """Read some records."""
        ...

    def commit(self) -> None:
        """Commit the positions."""
        ...

    def partitions(self) -> set[int]:
        """The assigned partitions."""
        ...

    def close(self) -> None:
        """Leave the group."""
        ...


class ConfluentMember:
    """librdkafka."""

    def __init__(
        self, bootstrap: str, group: str, topic: str, strategy: str = "range,roundrobin"
    ) -> None:
        settings = {
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 300,
        }
        self._consumer = Consumer(
            {
                **QUIET,
                **settings,
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "partition.assignment.strategy": strategy,
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> list[bytes]:
        return [
            message.value() or b""
            for message in self._consumer.consume(100, 0.1)
            if message.error() is None
        ]

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def partitions(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


class CooperativeMember(ConfluentMember):
    """librdkafka, with cooperative rebalances (KIP-429)."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        super().__init__(bootstrap, group, topic, "cooperative-sticky")


class KafkaPythonMember:
    """kafka-python."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap.split(","),
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=300,
        )

    def poll(self) -> list[bytes]:
        return [record.value for records in self._consumer.poll(100).values() for record in records]

    def commit(self) -> None:
        self._consumer.commit()

    def partitions(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close(autocommit=False)


class AiokafkaMember:
    """aiokafka, on its own event loop."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._consumer = self._do(self._made(bootstrap, group, topic))

    def _do(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    async def _made(self, bootstrap: str, group: str, topic: str) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=300,
            metadata_max_age_ms=1000,
        )
        await consumer.start()
        return consumer

    def poll(self) -> list[bytes]:
        found = self._do(self._consumer.getmany(timeout_ms=100))
        return [record.value for records in found.values() for record in records]

    def commit(self) -> None:
        self._do(self._consumer.commit())

    def partitions(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def close(self) -> None:
        self._do(self._consumer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()


class Reading:
    """A member that reads and commits in its own thread until it is asked to leave."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.values: list[bytes] = []
        self.partitions: set[int] = set()
        self.failure: Exception | None = None
        self._is_over = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                values = self.member.poll()
                self.values += values
                self.partitions = self.member.partitions()
                if values:
                    self._commit()
            self.member.close()
        except Exception as failure:  # reported to the test
            self.failure = failure

    def _commit(self) -> None:
        """Commit; offsets refused because of a rebalance or a coordinator change are committed
        later, or their records read again.
        """
        try:
            self.member.commit()
        except Exception as refused:
            if not any(
                word in type(refused).__name__ + str(refused)
                for word in (
                    "Commit",
                    "Rebalance",
                    "REBALANCE",
                    "coordinator",
                    "NO_OFFSET",
                    "Timed out",
                )
            ):
                raise

    def leave(self) -> None:
        """Stop it, and raise its error."""
        self._is_over.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure


@contextmanager
def reading(member: Member) -> Iterator[Reading]:
    """Run a member until the end of the block, unless it left before."""
    found = Reading(member)
    try:
        yield found
    finally:
        found.leave()


def write(cluster: ProcessCluster, topic: str, first: int, count: int) -> None:
    producer = Producer(
        {**QUIET, "bootstrap.servers": cluster.bootstrap, "enable.idempotence": True}
    )
    for number in range(first, first + count):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0


def wait_for(is_there: Callable[[], bool], what: str) -> None:
    give_up_at = time.monotonic() + SECONDS
    while not is_there():
        assert time.monotonic() < give_up_at, what
        time.sleep(0.1)


def created(cluster: ProcessCluster, topic: str) -> AdminClient:
    admin = AdminClient({**QUIET, "bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(SECONDS)
    wait_until_known(cluster, topic, PARTITIONS)
    return admin


def shared(one: Reading, other: Reading) -> bool:
    mine, others = one.partitions, other.partitions
    return bool(mine) and bool(others) and not mine & others and len(mine | others) == PARTITIONS


@pytest.mark.parametrize(
    "kind", [ConfluentMember, CooperativeMember, AiokafkaMember, KafkaPythonMember]
)
def test_a_group_loses_nothing_when_a_member_leaves_or_the_coordinator_dies(
    cluster: ProcessCluster,
    topic: str,
    kind: type[ConfluentMember] | type[AiokafkaMember] | type[KafkaPythonMember],
) -> None:
    admin = created(cluster, topic)
    group = f"{topic}-group"
    with reading(kind(cluster.bootstrap, group, topic)) as one:
        with reading(kind(cluster.bootstrap, group, topic)) as other:
            wait_for(lambda: shared(one, other), "the members never shared the topic")
            write(cluster, topic, 0, 100)
            wait_for(
                lambda: len(one.values) + len(other.values) >= 100, "100 records were not read"
            )
        assert Counter(one.values + other.values) == Counter(
            b"%d" % number for number in range(100)
        ), "read once"
        write(cluster, topic, 100, 100)
        wait_for(
            lambda: len({*one.values, *other.values}) == 200,
            "the rest of the group did not take over",
        )
        described = admin.describe_consumer_groups([group], request_timeout=SECONDS)[group].result(
            SECONDS
        )
        assert (described.state, len(described.members)) == (ConsumerGroupState.STABLE, 1)
        name = f"broker-{described.coordinator.id}"
        cluster.kill(name)
        try:
            write(cluster, topic, 200, 100)
            wait_for(
                lambda: len({*one.values, *other.values}) == 300, "no other coordinator took over"
            )
            wait_for(
                lambda: committed(cluster, group, topic) == 300,
                "what was read after that was not committed",
            )
        finally:
            restart_and_wait(cluster, name)


def committed(cluster: ProcessCluster, group: str, topic: str) -> int:
    """The sum of the committed offsets."""
    admin = AdminClient({**QUIET, "bootstrap.servers": cluster.bootstrap})
    wanted = [
        ConsumerGroupTopicPartitions(
            group, [TopicPartition(topic, number) for number in range(PARTITIONS)]
        )
    ]
    try:
        found = admin.list_consumer_group_offsets(wanted, request_timeout=10)[group].result(SECONDS)
    except KafkaException:
        return -1
    return sum(max(each.offset, 0) for each in found.topic_partitions)
