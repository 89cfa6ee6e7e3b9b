"""ListOffsets (2) version 0: several offsets per partition, from the time before messages had
timestamps.

Source: UnifiedLog.legacyFetchOffsetsBefore, KafkaApis.handleListOffsetRequestV0, KIP-896 (which
removed it).
"""

from kraftsim.conformance.batches import batch, produce, wall_ms
from kraftsim.conformance.expect import Inapplicable, expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target, TargetTopic
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k02_list_offsets import (
    CONSUMER_REPLICA_ID,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

REQUIREMENTS = Requirements("list-offsets", 2, "Version 0")
UNTIL = "3.9"
SOURCE = "UnifiedLog.legacyFetchOffsetsBefore"
DAY_MS = 86_400_000
SEGMENT_BYTES = 100
"""Less than the size of two batches of two records."""


def _ask(
    target: Target,
    topic: TargetTopic,
    timestamp: int,
    count: int,
    partitions: tuple[int, ...] = (0,),
) -> list[ListOffsetsPartitionResponse]:
    if target.range_of(ApiKey.LIST_OFFSETS)[0] > 0:
        raise Inapplicable("version 0 is not offered")
    rows = [
        ListOffsetsPartition(partition_index=each, timestamp=timestamp, max_num_offsets=count)
        for each in partitions
    ]
    asked = ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA_ID, topics=[ListOffsetsTopic(name=topic.name, partitions=rows)]
    )
    with target.peer(topic.leader) as peer:
        answer = peer.ask(asked, 0, ListOffsetsResponse)
    return answer.topics[0].partitions


def _offsets(target: Target, topic: TargetTopic, timestamp: int, count: int) -> list[int]:
    (row,) = _ask(target, topic, timestamp, count)
    expect_error(row.error_code, ErrorCode.NONE, f"timestamp {timestamp}, {count} offsets")
    return row.old_style_offsets


def _in_segments(target: Target) -> TargetTopic:
    """Create a topic with a batch of two records in each of four segments."""
    topic = target.topic(configs={"segment.bytes": str(SEGMENT_BYTES)})
    with target.peer(topic.leader) as peer:
        for _ in range(4):
            expect_error(
                produce(peer, topic.name, batch(2)).error_code, ErrorCode.NONE, "filling a topic"
            )
    return topic


@REQUIREMENTS.that(
    1,
    "the latest offsets are the end of the log and the base offsets of its segments, newest first",
    source=SOURCE,
    until=UNTIL,
)
def latest(target: Target) -> None:
    full, empty = _in_segments(target), target.topic()
    for count, expected in (
        (0, []),
        (1, [8]),
        (2, [8, 6]),
        (5, [8, 6, 4, 2, 0]),
        (100, [8, 6, 4, 2, 0]),
    ):
        expect_equal(
            _offsets(target, full, LATEST_TIMESTAMP, count), expected, f"the latest {count} offsets"
        )
        expect_equal(
            _offsets(target, empty, LATEST_TIMESTAMP, count),
            [0] if count else [],
            f"the latest {count} offsets of an empty log",
        )


@REQUIREMENTS.that(
    2,
    "the earliest offset is a single one, whatever max_num_offsets is",
    source=SOURCE,
    until=UNTIL,
)
def earliest(target: Target) -> None:
    topic = _in_segments(target)
    for count in (0, 1, 100):
        expect_equal(
            _offsets(target, topic, EARLIEST_TIMESTAMP, count),
            [0] if count else [],
            f"the earliest {count} offsets",
        )


@REQUIREMENTS.that(
    3,
    "a timestamp returns the segments that were last modified before it",
    source=SOURCE,
    until=UNTIL,
)
def point_in_time(target: Target) -> None:
    topic = _in_segments(target)
    for timestamp, expected in (
        (wall_ms() + DAY_MS, [8, 6, 4, 2, 0]),
        (wall_ms() - DAY_MS, []),
        (0, []),
    ):
        expect_equal(_offsets(target, topic, timestamp, 100), expected, f"timestamp {timestamp}")


@REQUIREMENTS.that(
    4, "a negative max_num_offsets returns UNKNOWN_SERVER_ERROR", source=SOURCE, until=UNTIL
)
def negative(target: Target) -> None:
    topic = _in_segments(target)
    for timestamp in (LATEST_TIMESTAMP, EARLIEST_TIMESTAMP, 0):
        (row,) = _ask(target, topic, timestamp, -1)
        expect_equal(
            (row.error_code, row.old_style_offsets),
            (ErrorCode.UNKNOWN_SERVER_ERROR, []),
            f"timestamp {timestamp}: error, offsets",
        )


@REQUIREMENTS.that(
    5,
    "a duplicate partition in the request is returned twice",
    source="KafkaApis.handleListOffsetRequestV0",
    until=UNTIL,
)
def asked_twice(target: Target) -> None:
    topic = _in_segments(target)
    rows = _ask(target, topic, LATEST_TIMESTAMP, 1, partitions=(0, 0))
    expect_equal(
        [(row.error_code, row.old_style_offsets) for row in rows], [(0, [8])] * 2, "errors, offsets"
    )
