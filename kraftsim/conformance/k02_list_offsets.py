"""ListOffsets (2): start and end of a partition, and offsets by timestamp.

Source: KIP-79, KIP-320, KIP-734, KIP-405, KIP-1005; KafkaApis.handleListOffsetRequest,
UnifiedLog.fetchOffsetByTimestamp.
"""

from kraftsim.conformance.batches import produce
from kraftsim.conformance.expect import expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target, TargetTopic
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k02_list_offsets import (
    CONSUMER_REPLICA_ID,
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.records.batches import build_batch
from protocol.records.record import Record

REQUIREMENTS = Requirements("list-offsets", 1, "ListOffsets")
HANDLER = "KafkaApis.handleListOffsetRequest"
EPOCHS_SINCE = 4
ISOLATED_SINCE = 2
SPECIAL_SINCE = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
"""The first version that supports each special timestamp."""
BATCH_TIMESTAMPS = ((1000, 1010), (3000, 3010), (2000, 2010), (5000, 5010))
"""Four batches of two records; the third one is late."""


def _ask(
    target: Target, topic: TargetTopic, version: int, *rows: ListOffsetsPartition
) -> list[ListOffsetsPartitionResponse]:
    asked = ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA_ID,
        topics=[ListOffsetsTopic(name=topic.name, partitions=list(rows))],
    )
    with target.peer(topic.leader) as peer:
        answer = peer.ask(asked, version, ListOffsetsResponse)
    return [row for each in answer.topics for row in each.partitions]


def _at(
    target: Target, topic: TargetTopic, version: int, timestamp: int
) -> ListOffsetsPartitionResponse:
    return _ask(
        target, topic, version, ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    )[0]


def _timed_topic(target: Target) -> TargetTopic:
    topic = target.topic()
    with target.peer(topic.leader) as peer:
        for timestamps in BATCH_TIMESTAMPS:
            row = produce(
                peer,
                topic.name,
                build_batch([Record(timestamp=timestamp, value=b"x") for timestamp in timestamps]),
            )
            expect_error(row.error_code, ErrorCode.NONE, "a batch of long ago")
    return topic


def _epoch_at(version: int) -> int:
    return 0 if version >= EPOCHS_SINCE else -1


@REQUIREMENTS.that(
    1, "the earliest and the latest offset are returned in every version", source=HANDLER
)
def both_ends(target: Target) -> None:
    for topic, end in ((target.topic(), 0), (_timed_topic(target), 8)):
        for version in target.versions(ApiKey.LIST_OFFSETS):
            for timestamp, offset in ((EARLIEST_TIMESTAMP, 0), (LATEST_TIMESTAMP, end)):
                row = _at(target, topic, version, timestamp)
                what = f"version {version}, timestamp {timestamp}"
                expect_error(row.error_code, ErrorCode.NONE, what)
                if version == 0:
                    expect_equal(row.old_style_offsets, [offset], what)
                else:
                    expect_equal(
                        (row.timestamp, row.offset, row.leader_epoch),
                        (-1, offset, _epoch_at(version)),
                        f"{what}: timestamp, offset, epoch",
                    )


@REQUIREMENTS.that(2, "a timestamp returns the first record that is not older", source="KIP-79")
def point_in_time(target: Target) -> None:
    topic = _timed_topic(target)
    for version in target.versions(ApiKey.LIST_OFFSETS, since=1):
        for timestamp, found in (
            (0, (1000, 0)),
            (1000, (1000, 0)),
            (1005, (1010, 1)),
            (1011, (3000, 2)),
            (3005, (3010, 3)),
            (3011, (5000, 6)),
            (5010, (5010, 7)),
        ):
            row = _at(target, topic, version, timestamp)
            expect_error(
                row.error_code, ErrorCode.NONE, f"version {version}, timestamp {timestamp}"
            )
            expect_equal(
                (row.timestamp, row.offset, row.leader_epoch),
                (*found, _epoch_at(version)),
                f"version {version}, at {timestamp}: timestamp, offset, epoch",
            )


@REQUIREMENTS.that(
    3,
    "a timestamp that is not found is no error: timestamp, offset and epoch are -1",
    source="KIP-79",
)
def nothing_found(target: Target) -> None:
    full, empty = _timed_topic(target), target.topic()
    for version in target.versions(ApiKey.LIST_OFFSETS, since=1):
        for topic, timestamp in ((full, 5011), (empty, 0)):
            row = _at(target, topic, version, timestamp)
            expect_error(
                row.error_code, ErrorCode.NONE, f"version {version}, timestamp {timestamp}"
            )
            expect_equal(
                (row.timestamp, row.offset, row.leader_epoch),
                (-1, -1, -1),
                f"version {version}, at {timestamp}: timestamp, offset, epoch",
            )


@REQUIREMENTS.that(
    4,
    "a special timestamp returns UNSUPPORTED_VERSION in versions before the one that introduced it",
    source="KafkaApis.handleListOffsetRequestV1AndAbove",
    since="3.9",
)
def specials_too_early(target: Target) -> None:
    topic = _timed_topic(target)
    for version in target.versions(ApiKey.LIST_OFFSETS):
        for timestamp, since in SPECIAL_SINCE.items():
            if version < since:
                row = _at(target, topic, version, timestamp)
                expect_error(
                    row.error_code,
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"version {version}, timestamp {timestamp}",
                )
                expect_equal(
                    (row.timestamp, row.offset, row.leader_epoch),
                    (-1, -1, -1),
                    f"version {version}, {timestamp}: timestamp, offset, epoch",
                )


@REQUIREMENTS.that(
    5, "since version 7 the record with the largest timestamp can be requested", source="KIP-734"
)
def largest_timestamp(target: Target) -> None:
    full, empty = _timed_topic(target), target.topic()
    for version in target.versions(ApiKey.LIST_OFFSETS, since=SPECIAL_SINCE[MAX_TIMESTAMP]):
        for topic, found in ((full, (5010, 7, 0)), (empty, (-1, -1, -1))):
            row = _at(target, topic, version, MAX_TIMESTAMP)
            expect_error(row.error_code, ErrorCode.NONE, f"version {version}")
            expect_equal(
                (row.timestamp, row.offset, row.leader_epoch),
                found,
                f"version {version}: timestamp, offset, epoch",
            )


@REQUIREMENTS.that(
    6,
    "without a remote log the local log start offset is the log start offset, and no data is "
    "tiered",
    source="KIP-405; KIP-1005",
    since="3.9",
)
def without_tiers(target: Target) -> None:
    topic = _timed_topic(target)
    for timestamp, found in (
        (EARLIEST_LOCAL_TIMESTAMP, (-1, 0, 0)),
        (LATEST_TIERED_TIMESTAMP, (-1, -1, -1)),
    ):
        for version in target.versions(ApiKey.LIST_OFFSETS, since=SPECIAL_SINCE[timestamp]):
            row = _at(target, topic, version, timestamp)
            expect_error(
                row.error_code, ErrorCode.NONE, f"version {version}, timestamp {timestamp}"
            )
            expect_equal(
                (row.timestamp, row.offset, row.leader_epoch),
                found,
                f"version {version}, {timestamp}: timestamp, offset, epoch",
            )


@REQUIREMENTS.that(
    7, "an unknown topic or partition returns UNKNOWN_TOPIC_OR_PARTITION", source=HANDLER
)
def unknown_partitions(target: Target) -> None:
    topic = target.topic()
    absent = TargetTopic(name=target.fresh_name("absent"), topic_id=bytes(16), leader=topic.leader)
    for version in target.versions(ApiKey.LIST_OFFSETS):
        for place, partition in ((absent, 0), (topic, 4)):
            row = _ask(
                target,
                place,
                version,
                ListOffsetsPartition(partition_index=partition, timestamp=LATEST_TIMESTAMP),
            )[0]
            expect_error(
                row.error_code,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"version {version}, partition {partition}",
            )
            expect_equal(
                (row.timestamp, row.offset, row.leader_epoch),
                (-1, -1, -1),
                f"version {version}: timestamp, offset, epoch",
            )


@REQUIREMENTS.that(
    8, "a duplicate partition in the request returns INVALID_REQUEST", source=HANDLER
)
def asked_twice(target: Target) -> None:
    topic = target.topic()
    twice = [ListOffsetsPartition(partition_index=0, timestamp=LATEST_TIMESTAMP)] * 2
    for version in target.versions(ApiKey.LIST_OFFSETS, since=1):
        codes = [
            row.error_code for row in _ask(target, topic, version, *twice)
        ]  # twice up to 3.9, once since 4.0
        expect_equal(sorted(set(codes)), [ErrorCode.INVALID_REQUEST], f"version {version}: errors")


@REQUIREMENTS.that(
    9, "a leader epoch above the leader's returns UNKNOWN_LEADER_EPOCH", source="KIP-320"
)
def unknown_leader_epoch(target: Target) -> None:
    topic = target.topic()
    for version in target.versions(ApiKey.LIST_OFFSETS, since=EPOCHS_SINCE):
        ahead = ListOffsetsPartition(
            partition_index=0, timestamp=LATEST_TIMESTAMP, current_leader_epoch=1000
        )
        row = _ask(target, topic, version, ahead)[0]
        expect_error(row.error_code, ErrorCode.UNKNOWN_LEADER_EPOCH, f"version {version}")


@REQUIREMENTS.that(
    10,
    "without a remote log there is no offset of a pending upload",
    source="KIP-1023",
    since="4.2",
)
def nothing_pending(target: Target) -> None:
    topic = _timed_topic(target)
    for version in target.versions(
        ApiKey.LIST_OFFSETS, since=SPECIAL_SINCE[EARLIEST_PENDING_UPLOAD_TIMESTAMP]
    ):
        row = _at(target, topic, version, EARLIEST_PENDING_UPLOAD_TIMESTAMP)
        expect_equal(
            (row.error_code, row.timestamp, row.offset, row.leader_epoch),
            (0, -1, -1, -1),
            f"version {version}: error, timestamp, offset, epoch",
        )


@REQUIREMENTS.that(
    11,
    "an unknown isolation level returns UNKNOWN_SERVER_ERROR for every partition, known or not",
    source=HANDLER,
)
def unknown_isolation(target: Target) -> None:
    topic = target.topic()
    names = (topic.name, target.fresh_name("absent"))
    rows = [
        ListOffsetsTopic(
            name=name,
            partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST_TIMESTAMP)],
        )
        for name in names
    ]
    with target.peer(topic.leader) as peer:
        for version in target.versions(ApiKey.LIST_OFFSETS, since=ISOLATED_SINCE):
            for level in (-1, 2, 127):
                asked = ListOffsetsRequest(
                    replica_id=CONSUMER_REPLICA_ID, isolation_level=level, topics=rows
                )
                answer = peer.ask(asked, version, ListOffsetsResponse)
                codes = [row.error_code for each in answer.topics for row in each.partitions]
                expect_equal(
                    codes,
                    [int(ErrorCode.UNKNOWN_SERVER_ERROR)] * 2,
                    f"version {version}, isolation level {level}: errors",
                )
