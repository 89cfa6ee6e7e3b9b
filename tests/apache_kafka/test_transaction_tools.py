"""Kafka's own kafka-transactions.sh against our brokers: transactions are listed, described, found hanging and aborted.   Source: KIP-664."""

from collections.abc import Callable, Iterator

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.marker_talk import TransactionAt, described_producer, read_at, seen
from kraftsim.conformance.target import Target
from protocol.errors import ErrorCode
from tests.apache_kafka.class_path import DEFAULT_RELEASE, class_path
from tests.apache_kafka.harness import run_java

pytestmark = pytest.mark.interop
TOOL = "org.apache.kafka.tools.TransactionsCommand"
UNVERIFIED = {"transaction.partition.verification.enable": "false"}
"""Records then begin transactions of which no coordinator knows (KAFKA-14402)."""
Tool = Callable[..., list[dict[str, str]]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[Tool, Target]]:
    """Run the tool against one broker, and return the lines of the table that it printed, by the words above them."""
    class_path()
    with EmbeddedCluster(ClusterSpec(brokers=1, port=free_port_range(1), settings=UNVERIFIED)) as running:

        def tool(*words: str) -> list[dict[str, str]]:
            done = run_java(DEFAULT_RELEASE, TOOL, "--bootstrap-server", running.bootstrap, *words)
            assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
            heads, *lines = [line.split("\t") for line in done.stdout.splitlines() if line.strip()] or [[]]
            return [dict(zip(map(str.strip, heads), map(str.strip, line), strict=False)) for line in lines]

        yield tool, Target(running.bootstrap)


def test_what_hangs_is_found_and_aborted(cluster):
    """A transaction that its coordinator knows does not hang; one that nobody will end is ended by hand, and readers go on."""
    tool, target = cluster
    known, hanging = TransactionAt(target, target.topic()), TransactionAt(target, target.topic())
    known.wrote(0)
    assert hanging.write(0, 2).error_code == ErrorCode.NONE
    assert seen(read_at(target, hanging.topic, 0)) == ([], 0, 2, [])

    (row,) = tool("describe-producers", "--topic", hanging.topic.name, "--partition", "0")
    told = (row["ProducerId"], row["LatestCoordinatorEpoch"], row["LastSequence"], row["CurrentTransactionStartOffset"])
    assert told == (str(hanging.producer_id), "-1", "1", "0")
    (found,) = tool("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0")
    assert (found["Topic"], found["Partition"], found["ProducerId"], found["StartOffset"]) == (hanging.topic.name, "0", str(hanging.producer_id), "0")

    tool("abort", "--topic", hanging.topic.name, "--partition", "0", "--start-offset", "0")
    assert seen(read_at(target, hanging.topic, 0)) == ([0, 2], 3, 3, [(hanging.producer_id, 0)])
    assert described_producer(target, hanging.topic, hanging.producer_id).current_txn_start_offset == -1
    assert tool("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0") == []


def test_transactions_are_listed_and_described(cluster):
    """By their coordinators."""
    tool, target = cluster
    told = TransactionAt(target, target.topic())
    told.wrote(0)
    listed = {row["TransactionalId"]: row for row in tool("list")}[told.id.name]
    assert (listed["ProducerId"], listed["TransactionState"], listed["Coordinator"]) == (str(told.producer_id), "Ongoing", "1")
    (row,) = tool("describe", "--transactional-id", told.id.name)
    assert (row["TransactionState"], row["TopicPartitions"]) == ("Ongoing", f"{told.topic.name}-0")
    told.ended(commits=False)
    (row,) = tool("describe", "--transactional-id", told.id.name)
    assert (row["TransactionState"], row["TopicPartitions"]) == ("CompleteAbort", "")
