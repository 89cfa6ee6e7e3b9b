"""Kafka's own kafka-transactions.sh against our brokers: transactions are listed, described, found
hanging and aborted.

Source: KIP-664.
"""

from collections.abc import Callable, Iterator

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.marker_client import TransactionAt, described_producer, read_at, seen
from kraftsim.conformance.target import Target
from protocol.errors import ErrorCode
from tests.apache_kafka.class_path import DEFAULT_RELEASE, class_path
from tests.apache_kafka.harness import run_java

pytestmark = pytest.mark.interop
TOOL = "org.apache.kafka.tools.TransactionsCommand"
UNVERIFIED = {"transaction.partition.verification.enable": "false"}
"""Then records start transactions that are unknown to the coordinator (KAFKA-14402)."""
Tool = Callable[..., list[dict[str, str]]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[Tool, Target]]:
    """Run the tool against one broker, and return the rows of the printed table, by its header."""
    class_path()
    with EmbeddedCluster(
        ClusterSpec(brokers=1, port=free_port_range(1), settings=UNVERIFIED)
    ) as running:

        def tool(*words: str) -> list[dict[str, str]]:
            done = run_java(DEFAULT_RELEASE, TOOL, "--bootstrap-server", running.bootstrap, *words)
            assert done.returncode == 0, (
                f"{words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
            )
            heads, *lines = [
                line.split("\t") for line in done.stdout.splitlines() if line.strip()
            ] or [[]]
            return [
                dict(zip(map(str.strip, heads), map(str.strip, line), strict=False))
                for line in lines
            ]

        yield tool, Target(running.bootstrap)


def test_kafka_transactions_finds_and_aborts_a_hanging_transaction(
    cluster: tuple[Tool, Target],
) -> None:
    """A transaction known to its coordinator is not hanging; one that no coordinator will end is
    aborted with the tool, and readers continue.
    """
    tool, target = cluster
    known, hanging = TransactionAt(target, target.topic()), TransactionAt(target, target.topic())
    known.wrote(0)
    assert hanging.write(0, 2).error_code == ErrorCode.NONE
    assert seen(read_at(target, hanging.topic, 0)) == ([], 0, 2, [])

    (row,) = tool("describe-producers", "--topic", hanging.topic.name, "--partition", "0")
    expected = (
        row["ProducerId"],
        row["LatestCoordinatorEpoch"],
        row["LastSequence"],
        row["CurrentTransactionStartOffset"],
    )
    assert expected == (str(hanging.producer_id), "-1", "1", "0")
    (found,) = tool("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0")
    assert (found["Topic"], found["Partition"], found["ProducerId"], found["StartOffset"]) == (
        hanging.topic.name,
        "0",
        str(hanging.producer_id),
        "0",
    )

    tool("abort", "--topic", hanging.topic.name, "--partition", "0", "--start-offset", "0")
    assert seen(read_at(target, hanging.topic, 0)) == ([0, 2], 3, 3, [(hanging.producer_id, 0)])
    assert (
        described_producer(target, hanging.topic, hanging.producer_id).current_txn_start_offset
        == -1
    )
    assert tool("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0") == []


def test_kafka_transactions_lists_and_describes_transactions(cluster: tuple[Tool, Target]) -> None:
    """By their coordinators."""
    tool, target = cluster
    transaction = TransactionAt(target, target.topic())
    transaction.wrote(0)
    listed = {row["TransactionalId"]: row for row in tool("list")}[transaction.id.name]
    assert (listed["ProducerId"], listed["TransactionState"], listed["Coordinator"]) == (
        str(transaction.producer_id),
        "Ongoing",
        "1",
    )
    (row,) = tool("describe", "--transactional-id", transaction.id.name)
    assert (row["TransactionState"], row["TopicPartitions"]) == (
        "Ongoing",
        f"{transaction.topic.name}-0",
    )
    transaction.ended(commits=False)
    (row,) = tool("describe", "--transactional-id", transaction.id.name)
    assert (row["TransactionState"], row["TopicPartitions"]) == ("CompleteAbort", "")
