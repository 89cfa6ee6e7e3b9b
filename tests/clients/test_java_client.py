"""The Java client, through the command-line tools of Apache Kafka itself."""

import re
import threading
import time
from collections.abc import Iterator

import pytest

from kraftsim.cluster.processes import ProcessCluster
from protocol.records.record import Compression
from tests.apache_kafka.class_path import DEFAULT_RELEASE, class_path
from tests.apache_kafka.harness import TOOLS, run_java, run_tool
from tests.clients.disks import batches_on_disk
from tests.cluster.running import create_topic, logged_events, restart_and_wait, wait_until_known

pytestmark = pytest.mark.interop


@pytest.fixture(autouse=True, scope="module")
def require_java() -> Iterator[None]:
    class_path()
    yield


def tool(cluster: ProcessCluster, name: str, *words: str, stdin: str | None = None) -> str:
    return run_tool(
        DEFAULT_RELEASE, name, "--bootstrap-server", cluster.bootstrap, *words, stdin=stdin
    )


def produce_by_performance_tool(
    cluster: ProcessCluster, topic: str, count: int, per_second: int, *properties: str
) -> str:
    words = [
        "--topic",
        topic,
        "--num-records",
        str(count),
        "--record-size",
        "100",
        "--throughput",
        str(per_second),
    ]
    return run_tool(
        DEFAULT_RELEASE,
        "producer-performance",
        *words,
        "--producer-props",
        f"bootstrap.servers={cluster.bootstrap}",
        *properties,
    )


def test_topics_are_created_and_listed(cluster: ProcessCluster, topic: str) -> None:
    words = (
        "--create",
        "--topic",
        topic,
        "--partitions",
        "4",
        "--replication-factor",
        "1",
        "--config",
        "max.message.bytes=100000",
    )
    assert tool(cluster, "topics", *words).strip() == f"Created topic {topic}."
    wait_until_known(cluster, topic, 4)
    assert topic in tool(cluster, "topics", "--list").splitlines()
    done = run_java(
        DEFAULT_RELEASE, TOOLS["topics"], "--bootstrap-server", cluster.bootstrap, *words
    )
    assert done.returncode == 1 and f"Topic '{topic}' already exists." in done.stdout


def test_the_console_tools_write_and_read_by_partition_and_offset(
    cluster: ProcessCluster, topic: str
) -> None:
    create_topic(cluster, topic, 2)
    lines = [f"key-{number}:value {number}" for number in range(40)]
    keyed = ("--property", "parse.key=true", "--property", "key.separator=:")
    tool(cluster, "console-producer", "--topic", topic, *keyed, stdin="\n".join(lines) + "\n")
    ends = [batches_on_disk(cluster, topic, partition)[-1].next_offset for partition in range(2)]
    assert sum(ends) == 40 and min(ends) > 2, "the default partitioner spreads keys"
    shown = (
        "--property",
        "print.key=true",
        "--property",
        "key.separator=:",
        "--property",
        "print.offset=true",
    )
    read: list[str] = []
    for partition, end in enumerate(ends):
        words = ("--topic", topic, "--partition", str(partition), "--timeout-ms", "20000", *shown)
        said = tool(
            cluster, "console-consumer", *words, "--offset", "earliest", "--max-messages", str(end)
        )
        found = [line.partition(":")[2].partition(":") for line in said.splitlines()]
        assert [int(offset) for offset, _, _ in found] == list(range(end))
        read += [rest for _, _, rest in found]
        assert (
            tool(cluster, "console-consumer", *words, "--offset", "2", "--max-messages", "1")
            == said.splitlines()[2] + "\n"
        )
    assert sorted(read) == sorted(lines)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_performance_tool_writes_idempotently_in_every_compression(
    cluster: ProcessCluster, topic: str, compression: str
) -> None:
    create_topic(cluster, topic, 1)
    said = produce_by_performance_tool(
        cluster, topic, 2000, -1, "enable.idempotence=true", f"compression.type={compression}"
    )
    assert said.startswith("2000 records sent")
    batches = batches_on_disk(cluster, topic, 0)
    assert sum(batch.record_count for batch in batches) == 2000
    assert all(batch.crc_is_valid() and batch.producer_id >= 0 for batch in batches)
    assert {Compression(batch.compression).name.lower() for batch in batches} == {compression}
    assert [batch.base_sequence for batch in batches] == [batch.base_offset for batch in batches], (
        "one producer, from sequence 0"
    )


def test_producers_lose_and_duplicate_nothing_while_a_broker_is_killed(
    cluster: ProcessCluster, topic: str
) -> None:
    """Three of them, idempotent by default, one broker killed with SIGKILL and restarted."""
    create_topic(cluster, topic, 3)
    each, said = 6000, []

    def write() -> None:
        said.append(
            produce_by_performance_tool(
                cluster,
                topic,
                each,
                2000,
                "retry.backoff.ms=50",
                "delivery.timeout.ms=60000",
                "linger.ms=2",
            )
        )

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    give_up_at = time.monotonic() + 30
    while (
        sum(
            event["topic"] == topic
            for event in logged_events(cluster.directory, "BatchAppended", "broker-3")
        )
        < 20
    ):
        assert time.monotonic() < give_up_at
        time.sleep(0.02)
    cluster.kill("broker-3")
    assert any(writer.is_alive() for writer in writers), (
        "the kill happened while records were produced"
    )
    restart_and_wait(cluster, "broker-3")
    for writer in writers:
        writer.join(60)
    assert all(f"{each} records sent" in text for text in said) and len(said) == 3
    batches = [
        batch for partition in range(3) for batch in batches_on_disk(cluster, topic, partition)
    ]
    assert sum(batch.record_count for batch in batches) == 3 * each
    assert len({batch.producer_id for batch in batches}) == 3


def test_broker_api_versions_understands_every_broker(cluster: ProcessCluster) -> None:
    """Advertised APIs are usable by the Java client in its newest version; APIs that are not
    implemented are not advertised.
    """
    said = tool(cluster, "broker-api-versions")
    assert sorted(re.findall(r"\(id: (\d+) rack: null\) -> \(", said)) == ["1", "2", "3"]
    usable = {
        (name, newest) for name, newest in re.findall(r"(\w+)\(\d+\): .*usable: (\d+)\]", said)
    }
    expected = {
        "Produce": 11,
        "Fetch": 17,
        "ListOffsets": 9,
        "Metadata": 12,
        "ApiVersions": 4,
        "CreateTopics": 7,
        "InitProducerId": 5,
    }
    assert usable >= {(name, str(newest)) for name, newest in expected.items()}
    assert "ERROR" not in said and "UNKNOWN" not in said
