"""DeleteRecords (21): the log start offset advances; errors, partition by partition.

Source: KIP-107; KafkaApis.handleDeleteRecordsRequest, ReplicaManager.deleteRecordsOnLocalLog.
"""

from kraftsim.conformance.batches import produce
from kraftsim.conformance.expect import expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target, TargetTopic
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.k02_list_offsets import (
    CONSUMER_REPLICA_ID,
    EARLIEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.k21_delete_records import (
    HIGH_WATERMARK,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from protocol.records.batches import build_batch
from protocol.records.record import Record

REQUIREMENTS = Requirements("delete-records", 1, "DeleteRecords")
HANDLER = "KafkaApis.handleDeleteRecordsRequest"
LOCAL_LOG = "ReplicaManager.deleteRecordsOnLocalLog"
TIMEOUT_MS = 10_000
RECORDS = 10
FETCH_BY_NAME = 12


def _topic(target: Target, configs: dict[str, str] | None = None) -> TargetTopic:
    """Create a topic with ten records in five batches."""
    topic = target.topic(configs=configs)
    with target.peer(topic.leader) as peer:
        for _ in range(RECORDS // 2):
            expect_error(
                produce(
                    peer, topic.name, build_batch([Record(key=b"k", value=b"v")] * 2)
                ).error_code,
                ErrorCode.NONE,
                "two records",
            )
    return topic


def _delete(
    target: Target,
    topic: TargetTopic,
    offset: int,
    version: int,
    *,
    partition: int = 0,
    name: str = "",
) -> DeleteRecordsPartitionResult:
    row = DeleteRecordsPartition(partition_index=partition, offset=offset)
    asked = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name or topic.name, partitions=[row])],
        timeout_ms=TIMEOUT_MS,
    )
    with target.peer(topic.leader) as peer:
        answer = peer.ask(asked, version, DeleteRecordsResponse)
    expect_equal([each.name for each in answer.topics], [name or topic.name], "the topics answered")
    return answer.topics[0].partitions[0]


def _beginning(target: Target, topic: TargetTopic) -> int:
    rows = [ListOffsetsPartition(partition_index=0, timestamp=EARLIEST_TIMESTAMP)]
    asked = ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA_ID, topics=[ListOffsetsTopic(name=topic.name, partitions=rows)]
    )
    with target.peer(topic.leader) as peer:
        return (
            peer.ask(asked, target.newest(ApiKey.LIST_OFFSETS), ListOffsetsResponse)
            .topics[0]
            .partitions[0]
            .offset
        )


@REQUIREMENTS.that(
    1,
    "records below an offset are deleted at once, in every version, and the response contains "
    "the low watermark",
    source="KIP-107",
)
def below_an_offset(target: Target) -> None:
    for version in target.versions(ApiKey.DELETE_RECORDS):
        topic = _topic(target)
        row = _delete(target, topic, 5, version)
        expect_equal((row.error_code, row.low_watermark), (0, 5), f"version {version}")
        expect_equal(_beginning(target, topic), 5, f"version {version}: where the partition begins")


@REQUIREMENTS.that(
    2,
    "a deleted offset returns OFFSET_OUT_OF_RANGE; the record at the new log start offset can be "
    "read",
    source="UnifiedLog.read",
)
def reading(target: Target) -> None:
    topic = _topic(target)
    _delete(target, topic, 5, target.newest(ApiKey.DELETE_RECORDS))
    with target.peer(topic.leader) as peer:
        for offset, error in ((4, ErrorCode.OFFSET_OUT_OF_RANGE), (5, ErrorCode.NONE)):
            wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            asked = FetchRequest(
                max_wait_ms=0, topics=[FetchTopic(topic=topic.name, partitions=[wanted])]
            )
            row = peer.ask(asked, FETCH_BY_NAME, FetchResponse).responses[0].partitions[0]
            expect_error(row.error_code, error, f"offset {offset}")
            expect_equal(
                row.log_start_offset,
                5 if error is ErrorCode.NONE else -1,
                f"offset {offset}: the log start offset",
            )


@REQUIREMENTS.that(
    3,
    "-1 deletes everything below the high watermark, and the next record gets the next offset",
    source="KIP-107",
)
def everything(target: Target) -> None:
    topic = _topic(target)
    row = _delete(target, topic, HIGH_WATERMARK, target.newest(ApiKey.DELETE_RECORDS))
    expect_equal((row.error_code, row.low_watermark), (0, RECORDS), "the answer")
    with target.peer(topic.leader) as peer:
        answer = produce(peer, topic.name, build_batch([Record(value=b"next")]))
    expect_equal(
        (answer.error_code, answer.base_offset, answer.log_start_offset),
        (0, RECORDS, RECORDS),
        "the next record",
    )


@REQUIREMENTS.that(
    4,
    "offsets above the high watermark, and other negative ones, are rejected with "
    "OFFSET_OUT_OF_RANGE",
    source=LOCAL_LOG,
)
def out_of_range(target: Target) -> None:
    topic = _topic(target)
    for version in target.versions(ApiKey.DELETE_RECORDS):
        for offset in (RECORDS + 1, -2):
            row = _delete(target, topic, offset, version)
            expect_equal(
                (row.error_code, row.low_watermark),
                (int(ErrorCode.OFFSET_OUT_OF_RANGE), -1),
                f"version {version}, offset {offset}",
            )
    expect_equal(_beginning(target, topic), 0, "where the partition begins")


@REQUIREMENTS.that(
    5,
    "an offset below the log start offset changes nothing and is no error",
    source="UnifiedLog.maybeIncrementLogStartOffset",
)
def backwards(target: Target) -> None:
    topic = _topic(target)
    version = target.newest(ApiKey.DELETE_RECORDS)
    for offset in (6, 2):
        row = _delete(target, topic, offset, version)
        expect_equal((row.error_code, row.low_watermark), (0, 6), f"offset {offset}")


@REQUIREMENTS.that(
    6, "a topic with cleanup.policy=compact only returns POLICY_VIOLATION", source=LOCAL_LOG
)
def compacted(target: Target) -> None:
    topic = _topic(target, {"cleanup.policy": "compact"})
    row = _delete(target, topic, 5, target.newest(ApiKey.DELETE_RECORDS))
    expect_equal(
        (row.error_code, row.low_watermark), (int(ErrorCode.POLICY_VIOLATION), -1), "the answer"
    )


@REQUIREMENTS.that(
    7, "an unknown topic or partition is rejected with UNKNOWN_TOPIC_OR_PARTITION", source=HANDLER
)
def unknown(target: Target) -> None:
    topic = _topic(target)
    for version in target.versions(ApiKey.DELETE_RECORDS):
        for partition, name in ((7, ""), (0, target.fresh_name())):
            row = _delete(target, topic, 5, version, partition=partition, name=name)
            returned = (row.partition_index, row.error_code, row.low_watermark)
            expect_equal(
                returned,
                (partition, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), -1),
                f"version {version}, partition {partition} of {name or 'ours'}",
            )
