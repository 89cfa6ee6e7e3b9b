"""A reassignment to a broker that is down, replaced by one that adds no replica: never completed by
Apache Kafka 4.3 and 4.4, while 4.2 completes it at once.

    python -m tests.apache_kafka.replaced_reassignments [--releases RELEASE ...]

Three brokers of Apache Kafka: a partition is on 1 and 2, broker 3 is stopped, and the partition is
reassigned to 1 and 3, then to 1 and 2. The second request adds nothing, so the controller leaves
the adding replicas as they are: broker 3 is among the adding and the removing ones, and since
KAFKA-19975 a reassignment waits for all adding ones. A cancellation (null replicas) ends it, and so
does broker 3, if it comes back and catches up.
Source: ReplicationControlManager.changePartitionReassignment,
PartitionReassignmentReplicas.maybeCompleteReassignment.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from kraftsim.conformance.expect import settled
from kraftsim.conformance.requirement import as_numbers
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from protocol.messages.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.apache_kafka.class_path import NEWEST_RELEASE
from tests.apache_kafka.harness import ApacheKafka
from tests.apache_kafka.mixed import SMALL_JVM

CONTROL = "4.2.2"
"""The last release without the bug."""
TIMEOUT_MS = 15_000
LIMIT_SECONDS = 10.0
"""A reassignment that only removes a replica takes milliseconds."""
BROKERS = (1, 2, 3)
BEFORE, TO_THE_STOPPED, BACK = (1, 2), (1, 3), (1, 2)
SETTINGS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


class InProgress(NamedTuple):
    """A reassignment in progress."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


STUCK = InProgress(replicas=(1, 2, 3), adding=(3,), removing=(3,))


class Observed(NamedTuple):
    """What is in progress after the second reassignment, and after its cancellation."""

    replaced: InProgress | None
    cancelled: InProgress | None


def reassign(target: Target, topic: str, replicas: Sequence[int] | None) -> ErrorCode:
    """Reassign the partition, or cancel its reassignment."""
    row = ReassignablePartition(
        partition_index=0, replicas=None if replicas is None else list(replicas)
    )
    asked = AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=topic, partitions=[row])]
    )
    with target.peer() as peer:
        answer = peer.ask(asked, 0, AlterPartitionReassignmentsResponse)
    return ErrorCode(answer.responses[0].partitions[0].error_code)


def in_progress(target: Target, topic: str) -> InProgress | None:
    """Return the reassignment of the partition that is in progress."""
    wanted = [ListPartitionReassignmentsTopics(name=topic, partition_indexes=[0])]
    asked = ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=wanted)
    with target.peer() as peer:
        answer = peer.ask(asked, 0, ListPartitionReassignmentsResponse)
    for found in answer.topics:
        for row in found.partitions:
            return InProgress(
                tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
            )
    return None


def observed(
    target: Target, stop: Callable[[int], None], limit_seconds: float = LIMIT_SECONDS
) -> Observed:
    """Replace a reassignment to a stopped broker, then cancel what is left of it."""
    topic = target.fresh_name("replaced")
    row = CreatableReplicaAssignment(partition_index=0, broker_ids=list(BEFORE))
    wanted = CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1, assignments=[row])
    with target.peer() as peer:
        made = peer.ask(
            CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS),
            target.newest(ApiKey.CREATE_TOPICS),
            CreateTopicsResponse,
        )
    assert made.topics[0].error_code == ErrorCode.NONE, made.topics[0].error_message
    target.led_topic(topic, 1)
    stop(BROKERS[-1])
    for replicas in (TO_THE_STOPPED, BACK):
        error = reassign(target, topic, replicas)
        assert error is ErrorCode.NONE, f"a reassignment to {replicas}: {error.name}"
    give_up_at = time.monotonic() + limit_seconds
    while (replaced := in_progress(target, topic)) is not None and time.monotonic() < give_up_at:
        time.sleep(0.2)
    reassign(target, topic, None)
    return Observed(replaced, in_progress(target, topic))


def expected(release: str) -> Observed:
    """Return what is written above, of a release."""
    return Observed(None if as_numbers(release) <= as_numbers(CONTROL) else STUCK, None)


@contextmanager
def three_brokers(release: str) -> Iterator[tuple[Target, Callable[[int], None]]]:
    """Run three brokers, and yield how to kill one; the first is the controller, too."""
    with ExitStack() as stack:
        first = stack.enter_context(ApacheKafka(release, dict(SETTINGS), SMALL_JVM))
        others = {}
        for broker_id in BROKERS[1:]:
            settings = {
                **SETTINGS,
                "process.roles": "broker",
                "node.id": str(broker_id),
                "controller.quorum.voters": f"1@{first.controller}",
            }
            others[broker_id] = stack.enter_context(ApacheKafka(release, settings, SMALL_JVM))
        target = Target(first.bootstrap, first.controller)
        await_brokers(target, len(BROKERS))

        def stop(broker_id: int) -> None:
            others[broker_id].stop(cleanly=False)
            await_brokers(target, len(BROKERS) - 1)

        yield target, stop


def await_brokers(target: Target, count: int) -> None:
    """Wait until that many brokers are not fenced."""

    def look() -> int:
        with target.peer() as peer:
            return len(peer.ask(DescribeClusterRequest(), 0, DescribeClusterResponse).brokers)

    settled(look, lambda found: found == count, f"{count} brokers", seconds=30.0)


def main(words: Sequence[str]) -> int:
    """Ask and print; 1 if a release does not do what is written above."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.apache_kafka.replaced_reassignments",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--releases", nargs="+", default=[CONTROL, NEWEST_RELEASE])
    are_as_written = True
    for release in parser.parse_args(words).releases:
        with three_brokers(release) as (target, stop):
            found = observed(target, stop)
        print(f"{release}: {found.replaced or 'completed'}; cancelled: {found.cancelled or 'done'}")
        are_as_written = are_as_written and found == expected(release)
    return int(not are_as_written)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
