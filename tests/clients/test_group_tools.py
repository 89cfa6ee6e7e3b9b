"""kafka-consumer-groups.sh: groups are listed, described, reset and deleted."""

import pytest
from confluent_kafka import Consumer

from kraftsim.cluster.processes import ProcessCluster
from tests.apache_kafka.class_path import DEFAULT_RELEASE
from tests.apache_kafka.harness import run_tool
from tests.clients.test_groups import QUIET, SECONDS, created, wait_for, write

pytestmark = pytest.mark.interop


def tool(cluster: ProcessCluster, *words: str) -> str:
    return run_tool(
        DEFAULT_RELEASE, "consumer-groups", "--bootstrap-server", cluster.bootstrap, *words
    )


def rows(printed: str) -> dict[int, list[str]]:
    """The words of each line about a partition, by its number."""
    lines = [line.split() for line in printed.splitlines()]
    return {int(words[2]): words for words in lines if len(words) > 4 and words[2].isdecimal()}


def test_kafka_consumer_groups_describes_resets_and_deletes_groups(
    cluster: ProcessCluster, topic: str
) -> None:
    created(cluster, topic)
    write(cluster, topic, 0, 40)
    group = f"{topic}-group"
    consumer = Consumer(
        {
            **QUIET,
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    read: list[bytes] = []

    def has_read_all() -> bool:
        read.extend(
            message.value() or b""
            for message in consumer.consume(100, 0.2)
            if message.error() is None
        )
        return len(read) == 40

    wait_for(has_read_all, f"40 records were not read within {SECONDS} s")
    consumer.commit(asynchronous=False)
    described = rows(tool(cluster, "--describe", "--group", group))
    assert {number: words[3:6] for number, words in described.items()} == {
        number: ["10", "10", "0"] for number in range(4)
    }, "offset, end, lag"
    assert "Stable" in tool(cluster, "--describe", "--group", group, "--state")
    consumer.close()
    tool(
        cluster,
        "--reset-offsets",
        "--group",
        group,
        "--topic",
        topic,
        "--to-offset",
        "3",
        "--execute",
    )
    assert {words[5] for words in rows(tool(cluster, "--describe", "--group", group)).values()} == {
        "7"
    }, "lag"
    assert group in tool(cluster, "--list").split()
    assert "successful" in tool(cluster, "--delete", "--group", group)
    assert group not in tool(cluster, "--list").split()
