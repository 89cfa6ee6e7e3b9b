"""CreatePartitions (37): partitions are added, topic by topic, and errors.

Source: KIP-195; ControllerApis.createPartitions, ReplicationControlManager.createPartitions.
"""

from kraftsim.conformance.expect import expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

REQUIREMENTS = Requirements("create-partitions", 1, "CreatePartitions")
CREATE = "ReplicationControlManager.createPartitions"
TIMEOUT_MS = 15_000
RECORDS_MAX = 10_000
UNKNOWN_ID = 999_999
"""A broker id that no cluster has."""


def _wanted(name: str, count: int, *assignments: list[int]) -> CreatePartitionsTopic:
    rows = [CreatePartitionsAssignment(broker_ids=broker_ids) for broker_ids in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=rows or None)


def _create(
    target: Target,
    version: int,
    *topics: CreatePartitionsTopic,
    validate_only: bool = False,
    timeout_ms: int = TIMEOUT_MS,
) -> list[CreatePartitionsTopicResult]:
    asked = CreatePartitionsRequest(
        topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only
    )
    with target.peer() as peer:
        return peer.ask(asked, version, CreatePartitionsResponse).results


def _refused(
    target: Target, topic: CreatePartitionsTopic, error: ErrorCode, why: str | None
) -> None:
    for version in target.versions(ApiKey.CREATE_PARTITIONS):
        rows = _create(target, version, topic)
        returned = [(row.name, row.error_code, row.error_message) for row in rows]
        expect_equal(
            returned,
            [(topic.name, int(error), why)],
            f"version {version}, {topic.count} partitions",
        )


@REQUIREMENTS.that(
    1,
    "a topic gets additional partitions, in every version, and they have leaders",
    source=f"KIP-195; {CREATE}",
)
def wider(target: Target) -> None:
    for version in target.versions(ApiKey.CREATE_PARTITIONS):
        topic = target.topic(partitions=1)
        row = _create(target, version, _wanted(topic.name, 3))[0]
        expect_equal(
            (row.name, row.error_code, row.error_message),
            (topic.name, 0, None),
            f"version {version}: the answer",
        )
        target.led_topic(topic.name, partitions=3)


@REQUIREMENTS.that(
    2,
    "a count that is not higher than the current one is rejected with INVALID_PARTITIONS",
    source=CREATE,
)
def not_wider(target: Target) -> None:
    name = target.topic(partitions=2).name
    _refused(
        target, _wanted(name, 2), ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."
    )
    for count in (1, 0, -5):
        why = f"The topic {name} currently has 2 partition(s); {count} would not be an increase."
        _refused(target, _wanted(name, count), ErrorCode.INVALID_PARTITIONS, why)


@REQUIREMENTS.that(3, "an unknown topic is rejected with UNKNOWN_TOPIC_OR_PARTITION", source=CREATE)
def unknown(target: Target) -> None:
    _refused(target, _wanted(target.fresh_name(), 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)


@REQUIREMENTS.that(
    4,
    "a duplicate topic in a request is rejected once, with INVALID_REQUEST",
    source="ControllerApis.createPartitions",
)
def twice(target: Target) -> None:
    name = target.topic(partitions=1).name
    rows = _create(
        target, target.newest(ApiKey.CREATE_PARTITIONS), _wanted(name, 2), _wanted(name, 3)
    )
    returned = [(row.name, row.error_code, row.error_message) for row in rows]
    expect_equal(
        returned, [(name, int(ErrorCode.INVALID_REQUEST), "Duplicate topic name.")], "the answer"
    )


@REQUIREMENTS.that(
    5,
    "a manual assignment lists each new partition, with known brokers and no duplicates: else "
    "INVALID_REPLICA_ASSIGNMENT",
    source=CREATE,
)
def by_hand(target: Target) -> None:
    topic = target.topic(partitions=1)
    name, own = topic.name, topic.leader_id
    wrong: list[tuple[CreatePartitionsTopic, str]] = [
        (
            _wanted(name, 3, [own]),
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            _wanted(name, 2, [own], [own]),
            "Attempted to add 1 additional partition(s), but only 2 assignment(s) were specified.",
        ),
        (_wanted(name, 2, []), "The manual partition assignment includes an empty replica list."),
        (
            _wanted(name, 2, [UNKNOWN_ID]),
            (
                f"The manual partition assignment includes broker {UNKNOWN_ID}, but no such broker "
                "is registered."
            ),
        ),
        (
            _wanted(name, 2, [own, own]),
            f"The manual partition assignment includes the broker {own} more than once.",
        ),
    ]
    for topic_wanted, why in wrong:
        _refused(target, topic_wanted, ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
    expect_error(
        _create(target, target.newest(ApiKey.CREATE_PARTITIONS), _wanted(name, 2, [own]))[
            0
        ].error_code,
        ErrorCode.NONE,
        "a good one",
    )


@REQUIREMENTS.that(
    6, "each topic of a request is extended or rejected independently", source="KIP-195"
)
def each_by_itself(target: Target) -> None:
    good, missing = target.topic(partitions=1).name, target.fresh_name()
    rows = _create(
        target, target.newest(ApiKey.CREATE_PARTITIONS), _wanted(missing, 2), _wanted(good, 2)
    )
    expected = {missing: int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), good: int(ErrorCode.NONE)}
    expect_equal({row.name: row.error_code for row in rows}, expected, "errors by topic")


@REQUIREMENTS.that(
    7, "validate_only returns the same errors without creating anything", source="KIP-195"
)
def validate_only(target: Target) -> None:
    name = target.topic(partitions=1).name
    for version in target.versions(ApiKey.CREATE_PARTITIONS):
        expect_error(
            _create(target, version, _wanted(name, 2), validate_only=True)[0].error_code,
            ErrorCode.NONE,
            f"version {version}",
        )
        row = _create(target, version, _wanted(name, 1), validate_only=True)[0]
        expect_error(row.error_code, ErrorCode.INVALID_PARTITIONS, f"version {version}, not wider")


@REQUIREMENTS.that(
    8,
    "more than ten thousand partitions at once are rejected",
    source="QuorumController.MAX_RECORDS_PER_USER_OP; verified against 3.9.1",
    until="4.3",
    since="3.5",
)
def too_many(target: Target) -> None:
    name, version = target.topic(partitions=1).name, target.newest(ApiKey.CREATE_PARTITIONS)
    expect_error(
        _create(target, version, _wanted(name, RECORDS_MAX + 1), validate_only=True)[0].error_code,
        ErrorCode.NONE,
        "ten thousand more",
    )
    row = _create(target, version, _wanted(name, RECORDS_MAX + 2), validate_only=True)[0]
    expect_equal(
        (row.error_code, row.error_message),
        (int(ErrorCode.UNKNOWN_SERVER_ERROR), None),
        "one more than that",
    )


@REQUIREMENTS.that(
    9,
    "a request without topics gets a response without topics, and a zero time-out "
    "REQUEST_TIMED_OUT",
    source="verified against Apache Kafka 3.9.1",
)
def nothing_to_do(target: Target) -> None:
    name = target.topic(partitions=1).name
    for version in target.versions(ApiKey.CREATE_PARTITIONS):
        expect_equal(_create(target, version), [], f"version {version}: rows of the answer")
        row = _create(target, version, _wanted(name, 2), timeout_ms=0)[0]
        expect_equal(
            (row.error_code, row.error_message),
            (int(ErrorCode.REQUEST_TIMED_OUT), None),
            f"version {version}: without time",
        )
