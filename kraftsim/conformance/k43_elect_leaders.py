"""ElectLeaders (43): leader elections on request, partition by partition.

Source: KIP-183, KIP-460; ReplicationControlManager.electLeaders,
ElectLeadersRequest.getErrorResponse.
"""

from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k43_elect_leaders import (
    PREFERRED,
    UNCLEAN,
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)

REQUIREMENTS = Requirements("elect-leaders", 1, "ElectLeaders")
ELECT = "ReplicationControlManager.electLeaders"
TYPES_SINCE = 1
TIMEOUT_MS = 15_000
NOT_NEEDED = "Leader election not needed for topic partition."

Row = tuple[str, int, int, str | None]
"""(topic, partition, error, message)."""


def _elect(
    target: Target,
    version: int,
    partitions: list[tuple[str, list[int]]] | None,
    kind: int = PREFERRED,
    timeout_ms: int = TIMEOUT_MS,
) -> ElectLeadersResponse:
    rows = (
        None
        if partitions is None
        else [TopicPartitions(topic=name, partitions=numbers) for name, numbers in partitions]
    )
    asked = ElectLeadersRequest(
        election_type=kind if version >= TYPES_SINCE else PREFERRED,
        topic_partitions=rows,
        timeout_ms=timeout_ms,
    )
    with target.peer() as peer:
        return peer.ask(asked, version, ElectLeadersResponse)


def _rows(answer: ElectLeadersResponse) -> list[Row]:
    return [
        (topic.topic, row.partition_id, row.error_code, row.error_message)
        for topic in answer.replica_election_results
        for row in topic.partition_result
    ]


@REQUIREMENTS.that(
    1,
    "a partition with its preferred leader returns ELECTION_NOT_NEEDED, in every version and for "
    "both election types",
    source=ELECT,
)
def not_needed(target: Target) -> None:
    name = target.topic(partitions=2).name
    for version in target.versions(ApiKey.ELECT_LEADERS):
        for kind in (PREFERRED, UNCLEAN) if version >= TYPES_SINCE else (PREFERRED,):
            answer = _elect(target, version, [(name, [0, 1, 0])], kind)
            expect_error(answer.error_code, ErrorCode.NONE, f"version {version}, type {kind}")
            expected = [
                (name, number, int(ErrorCode.ELECTION_NOT_NEEDED), NOT_NEEDED)
                for number in (0, 1, 0)
            ]
            expect_equal(_rows(answer), expected, f"version {version}, type {kind}")


@REQUIREMENTS.that(
    2, "an unknown topic or partition is rejected with UNKNOWN_TOPIC_OR_PARTITION", source=ELECT
)
def unknown(target: Target) -> None:
    name, missing = target.topic().name, target.fresh_name()
    for version in target.versions(ApiKey.ELECT_LEADERS):
        error = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        expected = [
            (missing, 0, error, f"No such topic as {missing}"),
            (name, 7, error, f"No such partition as {name}-7"),
        ]
        expect_equal(
            _rows(_elect(target, version, [(missing, [0]), (name, [7])])),
            expected,
            f"version {version}",
        )


@REQUIREMENTS.that(
    3,
    "for all partitions, those that need no election are left out, and their topics are not",
    source="KIP-183",
)
def all_partitions(target: Target) -> None:
    name = target.topic().name
    for version in target.versions(ApiKey.ELECT_LEADERS):
        answer = _elect(target, version, None)
        expect_error(answer.error_code, ErrorCode.NONE, f"version {version}")
        expect(
            name in [topic.topic for topic in answer.replica_election_results],
            f"version {version}: a topic is left out",
        )
        expect(
            name not in [row[0] for row in _rows(answer)],
            f"version {version}: a partition that needs no election is returned",
        )


@REQUIREMENTS.that(
    4,
    "an unknown election type is rejected with INVALID_REQUEST, at the top level and for every "
    "partition",
    source=ELECT,
)
def another_type(target: Target) -> None:
    name = target.topic().name
    for version in target.versions(ApiKey.ELECT_LEADERS, since=TYPES_SINCE):
        for kind in (2, 5, -1):
            answer = _elect(target, version, [(name, [0, 7])], kind)
            expect_error(
                answer.error_code, ErrorCode.INVALID_REQUEST, f"version {version}, type {kind}"
            )
            expected = [
                (name, number, int(ErrorCode.INVALID_REQUEST), f"Unknown election type {kind}")
                for number in (0, 7)
            ]
            expect_equal(_rows(answer), expected, f"version {version}, type {kind}")


@REQUIREMENTS.that(
    5,
    "an empty list of partitions elects nothing; a topic without partitions is returned without "
    "partitions",
    source="QuorumController.electLeaders",
)
def nothing_to_do(target: Target) -> None:
    name = target.topic().name
    for version in target.versions(ApiKey.ELECT_LEADERS):
        answer = _elect(target, version, [], timeout_ms=0)
        expect_equal(
            (answer.error_code, len(answer.replica_election_results)),
            (0, 0),
            f"version {version}: no topics",
        )
        answer = _elect(target, version, [(name, [])])
        returned = [
            (topic.topic, len(topic.partition_result)) for topic in answer.replica_election_results
        ]
        expect_equal(returned, [(name, 0)], f"version {version}: no partitions")


@REQUIREMENTS.that(
    6,
    "a zero time-out returns REQUEST_TIMED_OUT, before version 1 in the partitions only",
    source="verified against Apache Kafka 3.9.1",
)
def no_time(target: Target) -> None:
    name = target.topic().name
    for version in target.versions(ApiKey.ELECT_LEADERS):
        answer = _elect(target, version, [(name, [0])], timeout_ms=0)
        expect_error(
            answer.error_code,
            ErrorCode.REQUEST_TIMED_OUT if version >= TYPES_SINCE else ErrorCode.NONE,
            f"version {version}",
        )
        expect_equal(
            _rows(answer), [(name, 0, int(ErrorCode.REQUEST_TIMED_OUT), None)], f"version {version}"
        )
