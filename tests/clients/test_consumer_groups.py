"""Consumer groups of KIP-848 with real clients: librdkafka and Apache Kafka's consumer.

Members share a topic, leave, and survive a failover.

Source: KIP-848; `group.protocol=consumer`.
"""

import subprocess
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType
from confluent_kafka.admin import AdminClient

from kraftsim.cluster.processes import ProcessCluster
from tests.apache_kafka.harness import QUICK_JVM, TOOLS, TOOLS_OF_4, java_command
from tests.clients.test_groups import (
    QUIET,
    SECONDS,
    ConfluentMember,
    committed,
    created,
    reading,
    shared,
    wait_for,
    write,
)
from tests.cluster.running import QUICK_SESSIONS, restart_and_wait, running_processes

pytestmark = pytest.mark.interop
SOON = {
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    **QUICK_SESSIONS,
}
"""Short timeouts need lower minimum values, or a broker of Kafka 4.x refuses to start."""


class NewMember(ConfluentMember):
    """librdkafka with the protocol of KIP-848: the coordinator computes the assignment."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        settings = {
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "group.protocol": "consumer",
        }
        self._consumer = Consumer(
            {**QUIET, **settings, "bootstrap.servers": bootstrap, "group.id": group}
        )
        self._consumer.subscribe([topic])


@pytest.fixture(scope="module", params=["4.1", "4.4"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProcessCluster]:
    """Three brokers of a release with such groups."""
    with running_processes(
        tmp_path_factory.mktemp("consumers") / "run",
        brokers=3,
        release=request.param,
        settings=SOON,
    ) as running:
        yield running
        running.require_running()


def test_a_group_loses_nothing_when_a_member_leaves_or_the_coordinator_dies(
    cluster: ProcessCluster, topic: str
) -> None:
    admin = created(cluster, topic)
    group = f"{topic}-group"
    with reading(NewMember(cluster.bootstrap, group, topic)) as one:
        with reading(NewMember(cluster.bootstrap, group, topic)) as other:
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
        assert (described.state, described.type, len(described.members)) == (
            ConsumerGroupState.STABLE,
            ConsumerGroupType.CONSUMER,
            1,
        )
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


def test_the_java_consumer_reads_in_a_consumer_protocol_group(
    cluster: ProcessCluster, topic: str
) -> None:
    admin = created(cluster, topic)
    write(cluster, topic, 0, 100)
    said = console_consumer(cluster, topic, f"{topic}-group", 100)
    assert sorted(map(int, said.split())) == list(range(100))
    listed = {
        each.group_id: each.type
        for each in admin.list_consumer_groups(request_timeout=SECONDS).result(SECONDS).valid
    }
    assert listed[f"{topic}-group"] is ConsumerGroupType.CONSUMER
    write(cluster, topic, 100, 20)
    assert sorted(map(int, console_consumer(cluster, topic, f"{topic}-group", 20).split())) == list(
        range(100, 120)
    ), "it continues from the committed offsets"


def test_librdkafka_and_java_members_share_a_topic(cluster: ProcessCluster, topic: str) -> None:
    created(cluster, topic)
    group = f"{topic}-group"
    with reading(NewMember(cluster.bootstrap, group, topic)) as one:
        wait_for(lambda: len(one.partitions) == 4, "the first member is alone")
        write(cluster, topic, 0, 200)
        java = subprocess.Popen(
            console_command(cluster, topic, group, 50),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            wait_for(lambda: len(one.partitions) == 2, "half of the partitions went to the other")
            write(cluster, topic, 200, 200)
            words, _ = java.communicate(timeout=2 * SECONDS)
        finally:
            java.kill()
        wait_for(
            lambda: (
                len({int(value) for value in one.values} | {int(word) for word in words.split()})
                == 400
            ),
            "everything was read",
        )


def test_a_live_group_migrates_to_the_consumer_protocol_and_back(
    cluster: ProcessCluster, topic: str
) -> None:
    """The migration is transparent to both members, and no record is lost
    (group.consumer.migration.policy).
    """
    admin = created(cluster, topic)
    group = f"{topic}-group"

    def kind() -> ConsumerGroupType:
        listed = admin.list_consumer_groups(request_timeout=SECONDS).result(SECONDS).valid
        found: ConsumerGroupType = next(each.type for each in listed if each.group_id == group)
        return found

    with reading(ConfluentMember(cluster.bootstrap, group, topic)) as old:
        wait_for(lambda: len(old.partitions) == 4, "the old member is alone")
        write(cluster, topic, 0, 100)
        wait_for(lambda: len({*old.values}) == 100, "the old member read all")
        assert kind() is ConsumerGroupType.CLASSIC
        with reading(NewMember(cluster.bootstrap, group, topic)) as new:
            wait_for(lambda: shared(old, new), "the members of both kinds never shared the topic")
            assert kind() is ConsumerGroupType.CONSUMER
            write(cluster, topic, 100, 100)
            wait_for(lambda: len({*old.values, *new.values}) == 200, "both continued to read")
        wait_for(lambda: len(old.partitions) == 4, "the old member has everything again")
        assert kind() is ConsumerGroupType.CLASSIC
        write(cluster, topic, 200, 100)
        wait_for(lambda: len({*old.values, *new.values}) == 300, "the old member continued to read")


def test_an_admin_client_resets_and_deletes_a_consumer_protocol_group(
    cluster: ProcessCluster, topic: str
) -> None:
    admin = created(cluster, topic)
    write(cluster, topic, 0, 40)
    group = f"{topic}-group"
    with reading(NewMember(cluster.bootstrap, group, topic)) as one:
        wait_for(
            lambda: len(one.values) == 40, "40 records were read"
        )  # librdkafka's AdminClient fails on NOT_COORDINATOR for OffsetFetch
        wait_for(lambda: committed(cluster, group, topic) == 40, "40 records were committed")
        with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups([group], request_timeout=SECONDS)[group].result(SECONDS)
    admin.delete_consumer_groups([group], request_timeout=SECONDS)[group].result(SECONDS)
    other = AdminClient({**QUIET, "bootstrap.servers": cluster.bootstrap})
    assert group not in {
        each.group_id for each in other.list_consumer_groups().result(SECONDS).valid
    }


def console_command(cluster: ProcessCluster, topic: str, group: str, count: int) -> list[str]:
    """The command of Apache Kafka's console consumer in such a group.

    Skips without Java or Maven.
    """
    words = [
        "--bootstrap-server",
        cluster.bootstrap,
        "--topic",
        topic,
        "--group",
        group,
        "--from-beginning",
        "--max-messages",
        str(count),
    ]
    options = ["--timeout-ms", "30000", "--consumer-property", "group.protocol=consumer"]
    return java_command(TOOLS_OF_4, TOOLS["console-consumer"], *words, *options, jvm=QUICK_JVM)


def console_consumer(cluster: ProcessCluster, topic: str, group: str, count: int) -> str:
    """Let it read this many records, and return its output."""
    done = subprocess.run(
        console_command(cluster, topic, group, count),
        capture_output=True,
        text=True,
        timeout=2 * SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
