"""Apache Kafka's share consumers on our brokers: what they acknowledge, how often records are
delivered, locks, isolation levels, and a leader that is killed.

Source: KIP-932, KIP-1222; org.apache.kafka.clients.consumer.KafkaShareConsumer.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kraftsim.cluster.processes import ProcessCluster
from kraftsim.conformance.share_group_client import alter_group, require_share_groups
from kraftsim.conformance.target import Target
from tests.apache_kafka.class_path import class_path
from tests.clients.share_consumers import (
    ClientFailed,
    JavaConsumer,
    JavaConsumers,
    Shared,
    compiled,
    java_consumers,
)
from tests.cluster.broker_client import broker_client
from tests.cluster.running import (
    QUICK_SESSIONS,
    address_of,
    restart_and_wait,
    running_processes,
    wait_until_known,
)

pytestmark = pytest.mark.interop
RELEASES = {"4.1": "4.1.2", "4.2": "4.2.2", "4.3": "4.3.1", "4.4": "4.4.0"}
SETTINGS = {**QUICK_SESSIONS, "group.share.min.record.lock.duration.ms": "1000"}
LOCK_MS = 3000
DELIVERIES_MAX = 5
BATCH = 5
EXPLICIT = {"share_acknowledgement_mode": "explicit"}
MAX_POLLS = 80


@dataclass(frozen=True, slots=True)
class Setup:
    """A cluster that emulates a release, and share consumers of that release."""

    line: str
    cluster: ProcessCluster
    clients: JavaConsumers

    @property
    def target(self) -> Target:
        return Target(address_of(self.cluster, self.cluster.spec.broker_names[0]))

    def topic(self, name: str) -> str:
        """Create a topic with one partition and three replicas."""
        with broker_client(address_of(self.cluster, self.cluster.spec.broker_names[0])) as broker:
            broker.create_topic(name, 1, replicas=3)
        wait_until_known(self.cluster, name, 1)
        return name

    def group(self, group_id: str, **configs: str) -> str:
        """Let a group begin at the start of its topics, with short locks."""
        values = {
            "share.auto.offset.reset": "earliest",
            "share.record.lock.duration.ms": str(LOCK_MS),
        }
        values |= {name.replace("_", "."): value for name, value in configs.items()}
        assert alter_group(self.target, group_id, values) == (0, "")
        return group_id

    def write(self, topic: str, count: int) -> None:
        """Write records in batches of BATCH."""
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "acks": "all"})
        for number in range(count):
            producer.produce(topic, f"v{number}")
            if number % BATCH == BATCH - 1:
                assert producer.flush(30) == 0
        assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="module", params=RELEASES)
def setup(
    request: pytest.FixtureRequest, classes: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Setup]:
    """Three brokers, and a process with consumers."""
    line, release = request.param, RELEASES[request.param]
    class_path(release)
    directory = tmp_path_factory.mktemp("share") / "run"
    with running_processes(directory, brokers=3, release=line, settings=SETTINGS) as cluster:
        require_share_groups(Target(address_of(cluster, cluster.spec.broker_names[0])))
        with java_consumers(release, classes, cluster.bootstrap) as clients:
            yield Setup(line, cluster, clients)
        cluster.require_running()


def poll_until(consumer: JavaConsumer, count: int) -> list[Shared]:
    """Return what polls return until there are so many records."""
    found: list[Shared] = []
    for _ in range(MAX_POLLS):
        if len(found) >= count:
            return found
        found += consumer.poll(0.5)
    raise AssertionError(f"{MAX_POLLS} polls found only {found}")


def nothing_is_left(setup: Setup, group_id: str, topic: str) -> bool:
    """Whether another member gets nothing, though locks end meanwhile."""
    other = setup.clients.open(group_id, topic)
    found = [record for _ in range(5) for record in other.poll(LOCK_MS / 4000)]
    other.close()
    return not found


def test_two_consumers_share_one_partition(setup: Setup, topic: str) -> None:
    """Each record is delivered to one of them, once; a poll accepts what the last one returned."""
    count = 8 * BATCH
    group_id = setup.group(setup.topic(topic))
    setup.write(topic, count)
    both = [setup.clients.open(group_id, topic, max_poll_records=BATCH) for _ in range(2)]
    found: list[list[Shared]] = [[], []]
    for _ in range(MAX_POLLS):
        for consumer, own in zip(both, found, strict=True):
            own += consumer.poll(0.5)
        if sum(map(len, found)) >= count:
            break
    for consumer in both:
        assert set(consumer.commit().values()) <= {"NONE"}, "close would release the last ones"
        consumer.close()
    assert all(found), "both of them got records"
    assert sorted(record.offset for own in found for record in own) == list(range(count))
    assert {record.delivery_count for own in found for record in own} == {1}
    assert all(record.value == f"v{record.offset}" for own in found for record in own)
    assert nothing_is_left(setup, group_id, topic)


def test_records_are_accepted_released_and_rejected(setup: Setup, topic: str) -> None:
    """Released ones are delivered again, with a higher count, up to the limit of deliveries."""
    group_id = setup.group(setup.topic(topic))
    setup.write(topic, BATCH)
    consumer = setup.clients.open(group_id, topic, **EXPLICIT)
    got = consumer.poll_some()
    assert [record.delivery_count for record in got] == [1] * BATCH
    with pytest.raises(ClientFailed, match="IllegalStateException"):
        consumer.poll()
    for record, how in zip(got, ("ACCEPT", "RELEASE", "REJECT", "RELEASE", "ACCEPT"), strict=True):
        consumer.acknowledge(record, how)
    assert consumer.commit() == {0: "NONE"}
    for count in range(2, DELIVERIES_MAX + 1):
        again = consumer.poll_some()
        wanted = [(1, 2), (3, 2)] if count == 2 else [(1, count)]
        assert [(record.offset, record.delivery_count) for record in again] == wanted
        for record in again:
            consumer.acknowledge(record, "RELEASE" if record.offset == 1 else "ACCEPT")
        assert consumer.commit() == {0: "NONE"}
    assert consumer.poll() == [], "it was delivered five times"
    consumer.close()
    assert nothing_is_left(setup, group_id, topic)


def test_a_lock_expires_unless_it_is_renewed(setup: Setup, topic: str) -> None:
    """The record of an expired lock is another member's, and the first may not acknowledge it."""
    group_id = setup.group(setup.topic(topic))
    setup.write(topic, 1)
    first = setup.clients.open(group_id, topic, **EXPLICIT)
    (record,) = first.poll_some()
    other = setup.clients.open(group_id, topic, **EXPLICIT)
    if setup.line != "4.1":
        locked_at = time.monotonic()
        while time.monotonic() < locked_at + 1.5 * LOCK_MS / 1000:
            first.acknowledge(record, "RENEW")
            assert first.commit() == {0: "NONE"}
            assert other.poll(LOCK_MS / 6000) == []
            assert [each.offset for each in first.poll()] == [0], "it is returned again"
    (taken,) = other.poll_some()
    assert taken == record._replace(delivery_count=2)
    first.acknowledge(record, "ACCEPT")
    assert first.commit() == {0: "InvalidRecordStateException"}
    other.acknowledge(taken, "ACCEPT")
    assert other.commit() == {0: "NONE"}
    first.close()
    other.close()
    assert nothing_is_left(setup, group_id, topic)


def test_a_group_reads_what_is_committed_if_it_is_configured_so(setup: Setup, topic: str) -> None:
    setup.topic(topic)
    producer = Producer(
        {"bootstrap.servers": setup.cluster.bootstrap, "transactional.id": f"{topic}-writer"}
    )
    producer.init_transactions(60)
    for turn in range(4):
        producer.begin_transaction()
        for number in range(BATCH):
            producer.produce(topic, f"{turn}-{number}")
        assert producer.flush(30) == 0
        (producer.abort_transaction if turn % 2 else producer.commit_transaction)(60)
    every = [f"{turn}-{number}" for turn in range(4) for number in range(BATCH)]
    committed = [value for value in every if int(value[0]) % 2 == 0]
    for level, wanted in (("read_committed", committed), ("read_uncommitted", every)):
        group_id = setup.group(f"{topic}-{level}", share_isolation_level=level)
        consumer = setup.clients.open(group_id, topic)
        got = poll_until(consumer, len(wanted))
        assert [record.value for record in got] == wanted
        assert consumer.poll() == []
        consumer.close()
        assert nothing_is_left(setup, group_id, topic)


def test_nothing_is_lost_when_the_leader_is_killed(setup: Setup, topic: str) -> None:
    """What was accepted is not delivered again; what was not is delivered by the next leader."""
    count = 6 * BATCH
    group_id = setup.group(setup.topic(topic))
    setup.write(topic, count)
    consumer = setup.clients.open(group_id, topic, max_poll_records=BATCH, **EXPLICIT)
    accepted: list[int] = []

    def accept_some() -> None:
        records = consumer.poll(0.5)
        for record in records:
            consumer.acknowledge(record, "ACCEPT")
        if records and consumer.commit() == {0: "NONE"}:
            accepted.extend(record.offset for record in records)

    while len(accepted) < 2 * BATCH:
        accept_some()
    pending = consumer.poll_some()
    with broker_client(address_of(setup.cluster, setup.cluster.spec.broker_names[0])) as broker:
        leader = broker.metadata(topic).topics[0].partitions[0].leader_id
    setup.cluster.kill(f"broker-{leader}")
    for record in pending:
        consumer.acknowledge(record, "RELEASE")
    consumer.commit()
    for _ in range(MAX_POLLS):
        if len(accepted) >= count:
            break
        accept_some()
    restart_and_wait(setup.cluster, f"broker-{leader}")
    consumer.close()
    assert sorted(accepted) == list(range(count)), "each was accepted once"
    assert nothing_is_left(setup, group_id, topic)
