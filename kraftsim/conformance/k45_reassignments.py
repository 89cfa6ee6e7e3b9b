"""AlterPartitionReassignments (45) and ListPartitionReassignments (46) in a cluster of any size.

Source: KIP-455; ReplicationControlManager.{alterPartitionReassignments,
listPartitionReassignments}.
"""

from kraftsim.conformance.expect import expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
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

REQUIREMENTS = Requirements("reassignments", 1, "Partition reassignments")
ALTER = "ReplicationControlManager.alterPartitionReassignments"
LIST = "ReplicationControlManager.listPartitionReassignments"
TIMEOUT_MS = 15_000
UNKNOWN_ID = 999_999
"""A broker id that no cluster has."""

Row = tuple[str, int, int, str | None]
"""(topic, partition, error, message)."""


def _alter(
    target: Target,
    version: int,
    *moves: tuple[str, int, list[int] | None],
    timeout_ms: int = TIMEOUT_MS,
) -> AlterPartitionReassignmentsResponse:
    rows = [
        ReassignableTopic(
            name=name, partitions=[ReassignablePartition(partition_index=number, replicas=to)]
        )
        for name, number, to in moves
    ]
    with target.peer() as peer:
        asked = AlterPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=rows)
        return peer.ask(asked, version, AlterPartitionReassignmentsResponse)


def _rows(answer: AlterPartitionReassignmentsResponse) -> list[Row]:
    return [
        (topic.name, row.partition_index, row.error_code, row.error_message)
        for topic in answer.responses
        for row in topic.partitions
    ]


def _list(
    target: Target, version: int, partitions: list[tuple[str, list[int]]] | None
) -> ListPartitionReassignmentsResponse:
    rows = (
        None
        if partitions is None
        else [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
            for name, numbers in partitions
        ]
    )
    with target.peer() as peer:
        return peer.ask(
            ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=rows),
            version,
            ListPartitionReassignmentsResponse,
        )


@REQUIREMENTS.that(
    1,
    "a reassignment to the current replicas succeeds, and no reassignment is in progress",
    source=ALTER,
)
def to_itself(target: Target) -> None:
    topic = target.topic()
    for version in target.versions(ApiKey.ALTER_PARTITION_REASSIGNMENTS):
        answer = _alter(target, version, (topic.name, 0, [topic.leader_id]))
        expect_equal(
            (answer.error_code, answer.error_message),
            (0, None),
            f"version {version}: the top-level error",
        )
        expect_equal(_rows(answer), [(topic.name, 0, 0, None)], f"version {version}")
    for version in target.versions(ApiKey.LIST_PARTITION_REASSIGNMENTS):
        expect_equal(
            _list(target, version, [(topic.name, [0])]).topics,
            [],
            f"version {version}: reassignments in progress",
        )


@REQUIREMENTS.that(
    2,
    "a reassignment of an unknown topic or partition returns UNKNOWN_TOPIC_OR_PARTITION",
    source=ALTER,
)
def unknown(target: Target) -> None:
    name, missing = target.topic().name, target.fresh_name()
    error = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for version in target.versions(ApiKey.ALTER_PARTITION_REASSIGNMENTS):
        answer = _alter(target, version, (missing, 0, [1]), (name, 7, [1]), (name, 7, None))
        expected = [
            (missing, 0, error, f"Unable to find a topic named {missing}."),
            (name, 7, error, f"Unable to find partition {name}:7."),
            (name, 7, error, f"Unable to find partition {name}:7."),
        ]
        expect_equal(_rows(answer), expected, f"version {version}")


@REQUIREMENTS.that(
    3,
    "an empty replica list, an unknown broker, and a duplicate broker are rejected with "
    "INVALID_REPLICA_ASSIGNMENT",
    source=ALTER,
)
def nowhere(target: Target) -> None:
    topic = target.topic()
    name, own, error = topic.name, topic.leader_id, int(ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    for version in target.versions(ApiKey.ALTER_PARTITION_REASSIGNMENTS):
        answer = _alter(
            target, version, (name, 0, []), (name, 0, [UNKNOWN_ID]), (name, 0, [own, own])
        )
        expected = [
            (name, 0, error, "The manual partition assignment includes an empty replica list."),
            (
                name,
                0,
                error,
                (
                    f"The manual partition assignment includes broker {UNKNOWN_ID}, but no such "
                    "broker is registered."
                ),
            ),
            (
                name,
                0,
                error,
                f"The manual partition assignment includes the broker {own} more than once.",
            ),
        ]
        expect_equal(_rows(answer), expected, f"version {version}")


@REQUIREMENTS.that(
    4,
    "cancelling a reassignment that is not in progress returns NO_REASSIGNMENT_IN_PROGRESS",
    source=f"KIP-455; {ALTER}",
)
def not_under_way(target: Target) -> None:
    name = target.topic().name
    for version in target.versions(ApiKey.ALTER_PARTITION_REASSIGNMENTS):
        expected = [(name, 0, int(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS), None)]
        expect_equal(
            _rows(_alter(target, version, (name, 0, None))), expected, f"version {version}"
        )


@REQUIREMENTS.that(
    5,
    "a request without topics gets a response without topics, and a zero time-out "
    "REQUEST_TIMED_OUT",
    source="verified against Apache Kafka 3.9.1",
)
def nothing_to_do(target: Target) -> None:
    topic = target.topic()
    for version in target.versions(ApiKey.ALTER_PARTITION_REASSIGNMENTS):
        answer = _alter(target, version, timeout_ms=0)
        expect_equal(
            (answer.error_code, len(answer.responses)), (0, 0), f"version {version}: no topics"
        )
        answer = _alter(target, version, (topic.name, 0, [topic.leader_id]), timeout_ms=0)
        expect_error(
            answer.error_code, ErrorCode.REQUEST_TIMED_OUT, f"version {version}: without time"
        )
        expect_equal(
            _rows(answer),
            [(topic.name, 0, int(ErrorCode.REQUEST_TIMED_OUT), None)],
            f"version {version}: without time",
        )


@REQUIREMENTS.that(
    6,
    "unknown topics are skipped when reassignments are listed, and an empty list of topics lists "
    "none",
    source=LIST,
)
def listed(target: Target) -> None:
    name = target.topic().name
    for version in target.versions(ApiKey.LIST_PARTITION_REASSIGNMENTS):
        for partitions in ([(target.fresh_name(), [0]), (name, [0, 7])], []):
            answer = _list(target, version, partitions)
            expect_equal(
                (answer.error_code, answer.error_message, answer.topics),
                (0, None, []),
                f"version {version}, {len(partitions)} topics",
            )
        names = [topic.name for topic in _list(target, version, None).topics]
        expect_equal(name in names, False, f"version {version}: the topic among all reassignments")


@REQUIREMENTS.that(
    7,
    "allow_replication_factor_change=false is echoed, and accepted if the replication factor "
    "does not change",
    source="KIP-860",
    since="4.1",
)
def as_many(target: Target) -> None:
    topic = target.topic()
    for version in target.versions(ApiKey.ALTER_PARTITION_REASSIGNMENTS, since=1):
        for may_change in (True, False):
            rows = [
                ReassignableTopic(
                    name=topic.name,
                    partitions=[
                        ReassignablePartition(partition_index=0, replicas=[topic.leader_id])
                    ],
                )
            ]
            asked = AlterPartitionReassignmentsRequest(
                timeout_ms=TIMEOUT_MS, topics=rows, allow_replication_factor_change=may_change
            )
            with target.peer() as peer:
                answer = peer.ask(asked, version, AlterPartitionReassignmentsResponse)
            expect_equal(
                (answer.allow_replication_factor_change, _rows(answer)),
                (may_change, [(topic.name, 0, 0, None)]),
                f"version {version}",
            )
