"""DescribeTopicPartitions (75): partitions page by page.

Source: KIP-966; DescribeTopicPartitionsRequestHandler, KRaftMetadataCache.
"""

from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopic,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

REQUIREMENTS = Requirements("describe", 1, "DescribeTopicPartitions")
HANDLER = "DescribeTopicPartitionsRequestHandler"
SINCE = "3.8"
ALL_OPERATIONS = 0b1101_1111_1000
NO_ID = bytes(16)


def _ask(
    target: Target, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    begin = None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1])
    asked = DescribeTopicPartitionsRequest(
        topics=[DescribeTopic(name=name) for name in names],
        response_partition_limit=limit,
        cursor=begin,
    )
    with target.peer() as peer:
        return peer.ask(
            asked, target.newest(ApiKey.DESCRIBE_TOPIC_PARTITIONS), DescribeTopicPartitionsResponse
        )


def _page(
    answer: DescribeTopicPartitionsResponse,
) -> tuple[list[tuple[str | None, list[int]]], tuple[str, int] | None]:
    """Return the partitions of the page, and the cursor of the next one."""
    rows = [
        (topic.name, [row.partition_index for row in topic.partitions]) for topic in answer.topics
    ]
    return rows, None if answer.next_cursor is None else (
        answer.next_cursor.topic_name,
        answer.next_cursor.partition_index,
    )


@REQUIREMENTS.that(
    1,
    "a topic is returned with its id, and each partition with its replicas; no list is null",
    source=HANDLER,
    since=SINCE,
)
def whole(target: Target) -> None:
    topic = target.topic(partitions=2)
    found = _ask(target, topic.name).topics[0]
    expect_error(found.error_code, ErrorCode.NONE, "the topic")
    returned = (found.name, found.topic_id, found.is_internal, found.topic_authorized_operations)
    expect_equal(
        returned,
        (topic.name, topic.topic_id, False, ALL_OPERATIONS),
        "name, id, whether it is internal, operations",
    )
    for row in found.partitions:
        expect_error(row.error_code, ErrorCode.NONE, f"partition {row.partition_index}")
        expect(
            row.leader_id in row.isr_nodes and row.isr_nodes == row.replica_nodes,
            f"partition {row.partition_index}: led by {row.leader_id}",
        )
        rest = (row.eligible_leader_replicas, row.last_known_elr, row.offline_replicas)
        expect_equal(
            rest,
            ([], [], []),
            f"partition {row.partition_index}: eligible leaders, the last known ones, offline "
            "replicas",
        )


@REQUIREMENTS.that(
    2,
    "topics are returned by name, each one once, whatever their order in the request",
    source=HANDLER,
    since=SINCE,
)
def order(target: Target) -> None:
    one, two = sorted(target.topic().name for _ in range(2))
    expect_equal(
        _page(_ask(target, two, one, two)),
        ([(one, [0]), (two, [0])], None),
        "topics, the next page",
    )


@REQUIREMENTS.that(
    3,
    "a page contains as many partitions as requested, and the cursor of the next one",
    source=HANDLER,
    since=SINCE,
)
def pages(target: Target) -> None:
    one, two = sorted(target.topic(partitions=3).name for _ in range(2))
    for limit, cursor, expected in (
        (2, None, ([(one, [0, 1])], (one, 2))),
        (2, (one, 2), ([(one, [2]), (two, [0])], (two, 1))),
        (2, (two, 1), ([(two, [1, 2])], None)),
        (3, None, ([(one, [0, 1, 2])], (two, 0))),
        (6, None, ([(one, [0, 1, 2]), (two, [0, 1, 2])], None)),
        (0, None, ([(one, [0])], (one, 1))),
        (-5, (two, 2), ([(two, [2])], None)),
        (2000, (one, 3), ([(one, []), (two, [0, 1, 2])], None)),
    ):
        expect_equal(
            _page(_ask(target, one, two, limit=limit, cursor=cursor)),
            expected,
            f"at most {limit} from {cursor} on: topics, the next page",
        )


@REQUIREMENTS.that(
    4,
    "an unknown topic returns UNKNOWN_TOPIC_OR_PARTITION, an invalid name INVALID_TOPIC_EXCEPTION",
    source=HANDLER,
    since=SINCE,
)
def unknown(target: Target) -> None:
    absent = target.fresh_name("absent")
    for name, error in (
        (absent, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ):
        answer = _ask(target, name)
        found = answer.topics[0]
        expect_error(found.error_code, error, f"topic {name!r}")
        expect_equal(
            (found.name, found.topic_id, found.partitions),
            (name, NO_ID, []),
            f"topic {name!r}: name, id, partitions",
        )
        expect_equal(answer.next_cursor, None, "the next page")


@REQUIREMENTS.that(
    5, "an empty list of topics returns all topics, page by page", source=HANDLER, since=SINCE
)
def everything(target: Target) -> None:
    name = target.topic(partitions=2).name
    rows, _ = _page(_ask(target, cursor=(name, 1)))
    expect_equal(rows[0], (name, [1]), "the first topic")
    expect_equal([row[0] for row in rows], sorted(str(row[0]) for row in rows), "the order")


@REQUIREMENTS.that(
    6,
    "a cursor outside of the requested topics is rejected with INVALID_REQUEST for every topic",
    source=HANDLER,
    since=SINCE,
)
def bad_cursor(target: Target) -> None:
    name = target.topic().name
    for cursor in ((name, -1), (name + "-", 0), (name[:-1], 0)):
        answer = _ask(target, name, cursor=cursor)
        returned = [(topic.name, topic.error_code) for topic in answer.topics]
        expect_equal(
            returned,
            [(name, int(ErrorCode.INVALID_REQUEST))],
            f"cursor {cursor}: topics and errors",
        )
    rows, _ = _page(_ask(target, cursor=(name + "-", 0)))
    expect(
        name not in [row[0] for row in rows],
        "everything behind a topic that is none has what lies before it",
    )
