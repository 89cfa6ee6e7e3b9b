"""WriteTxnMarkers (27): the markers that end a transaction in a partition, and their validation.

Source: KIP-98; KafkaApis.handleWriteTxnMarkersRequest, ProducerAppendInfo.appendEndTxnMarker.
"""

from kraftsim.conformance.batches import batch, produce, wall_ms
from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.marker_client import (
    TransactionAt,
    described_producer,
    end_at,
    expect_seen,
    marker,
    read_at,
    write_markers,
)
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k27_write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from protocol.records.batches import RecordBatch

REQUIREMENTS = Requirements("transactions", 11, "WriteTxnMarkers")
HANDLER = "KafkaApis.handleWriteTxnMarkersRequest"
APPEND = "ProducerAppendInfo.appendEndTxnMarker"
NAMES_UNTIL = 2
MINUTE_MS = 60_000
NAMES_LEVEL_SINCE, BUMPS_EPOCHS = 2, 2
"""The version with transaction.version, and its first level that raises the epoch at each end."""


def _versions(target: Target) -> list[int]:
    return list(target.versions(ApiKey.WRITE_TXN_MARKERS))


@REQUIREMENTS.that(
    1,
    "a marker is a control batch of one record with its type and the coordinator epoch",
    source="MemoryRecords.withEndTransactionMarker",
)
def control_batch(target: Target) -> None:
    for version in _versions(target):
        for commits in (False, True):
            topic = target.topic()
            expect_error(
                end_at(
                    target, topic, (4000, 5), commits=commits, coordinator_epoch=7, version=version
                ),
                ErrorCode.NONE,
                f"version {version}",
            )
            written = RecordBatch(bytes(read_at(target, topic, 0).records or b""))
            what = f"version {version}, {'commit' if commits else 'abort'}"
            expect_equal(
                (written.base_offset, written.last_offset, written.attributes),
                (0, 0, 0b110000),
                f"{what}: offsets, attributes",
            )
            expect_equal(
                (written.producer_id, written.producer_epoch, written.base_sequence),
                (4000, 5, -1),
                f"{what}: id, epoch, sequence",
            )
            expect(written.crc_is_valid(), f"{what}: the checksum is wrong")
            (record,) = written.records()
            expect_equal(bytes(record.key or b""), bytes([0, 0, 0, int(commits)]), f"{what}: key")
            expect_equal(bytes(record.value or b""), bytes([0, 0, 0, 0, 0, 7]), f"{what}: value")
            expect(
                abs(record.timestamp - wall_ms()) < MINUTE_MS,
                f"{what}: the marker is of {record.timestamp}",
            )


@REQUIREMENTS.that(
    2,
    "each partition has its own error; one that the broker does not host returns "
    "UNKNOWN_TOPIC_OR_PARTITION",
    source=HANDLER,
)
def partitions(target: Target) -> None:
    topic, absent = target.topic(), target.fresh_name("absent")
    for version in _versions(target):
        rows = [
            marker((4000, 0), topics={topic.name: [0, 9], absent: [0]}),
            marker((4001, 0), topics={topic.name: [0]}),
        ]
        expect_equal(
            write_markers(target, topic.leader, *rows, version=version),
            {
                (4000, topic.name, 0): 0,
                (4000, topic.name, 9): 3,
                (4000, absent, 0): 3,
                (4001, topic.name, 0): 0,
            },
            f"version {version}: errors",
        )


@REQUIREMENTS.that(
    3, "a request without markers, and markers without partitions, return nothing", source=HANDLER
)
def nothing(target: Target) -> None:
    topic = target.topic()
    for version in _versions(target):
        for rows in ([], [marker((4000, 0), topics={})]):
            with target.peer(topic.leader) as peer:
                answer = peer.ask(
                    WriteTxnMarkersRequest(markers=rows), version, WriteTxnMarkersResponse
                )
            expect_equal(
                [each for found in answer.markers for each in found.topics],
                [],
                f"version {version}, {len(rows)} markers",
            )


@REQUIREMENTS.that(
    4,
    "an older producer epoch than that of the partition returns INVALID_PRODUCER_EPOCH, a newer "
    "one is accepted",
    source="ProducerAppendInfo.checkProducerEpoch",
)
def epochs(target: Target) -> None:
    topic = target.topic()
    with target.peer(topic.leader) as peer:
        produce(peer, topic.name, batch(1, producer_id=4000, producer_epoch=3, base_sequence=0))
    expect_error(
        end_at(target, topic, (4000, 2)), ErrorCode.INVALID_PRODUCER_EPOCH, "an older epoch"
    )
    for epoch in (3, 5):
        expect_error(end_at(target, topic, (4000, epoch)), ErrorCode.NONE, f"epoch {epoch}")
    expect_error(
        end_at(target, topic, (4000, 4)),
        ErrorCode.INVALID_PRODUCER_EPOCH,
        "an epoch before that of the last marker",
    )
    expect_equal(
        described_producer(target, topic, 4000).producer_epoch, 5, "the epoch that is known now"
    )


@REQUIREMENTS.that(
    5,
    "a marker with a lower coordinator epoch than the last marker returns "
    "TRANSACTION_COORDINATOR_FENCED",
    source="ProducerAppendInfo.checkCoordinatorEpoch",
)
def coordinators(target: Target) -> None:
    topic = target.topic()
    for coordinator_epoch, expected in (
        (3, ErrorCode.NONE),
        (2, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (3, ErrorCode.NONE),
        (4, ErrorCode.NONE),
    ):
        expect_error(
            end_at(target, topic, (4000, 0), coordinator_epoch=coordinator_epoch),
            expected,
            f"coordinator epoch {coordinator_epoch}",
        )
    expect_error(
        end_at(target, topic, (4001, 0), coordinator_epoch=0), ErrorCode.NONE, "of another producer"
    )
    expect_error(
        end_at(target, topic, (4000, -2), coordinator_epoch=1),
        ErrorCode.INVALID_PRODUCER_EPOCH,
        "both with an older epoch",
    )
    expect_equal(
        described_producer(target, topic, 4000).coordinator_epoch,
        4,
        "the coordinator epoch that is known now",
    )


@REQUIREMENTS.that(
    6, "a repeated marker is written again, and ends nothing", source=f"{HANDLER}; KAFKA-10702"
)
def repeated_marker(target: Target) -> None:
    topic = target.topic()
    transaction = TransactionAt(target, topic)
    transaction.wrote(0, 2)
    for _ in range(3):
        expect_error(
            end_at(target, topic, transaction.producer, commits=False), ErrorCode.NONE, "an abort"
        )
    expect_seen(
        target,
        topic,
        0,
        ([0, 2, 3, 4], 5, 5, [(transaction.producer_id, 0)]),
        "after three markers",
    )


@REQUIREMENTS.that(
    7,
    "two markers of one producer in one request share their result, which is that of the later one",
    source=HANDLER,
)
def shared(target: Target) -> None:
    topic = target.topic()
    end_at(target, topic, (4000, 3))
    rows = [marker((4000, epoch), topics={topic.name: [0]}) for epoch in (2, 3)]
    expect_equal(
        write_markers(target, topic.leader, *rows),
        {(4000, topic.name, 0): 0},
        "the later one is good",
    )


@REQUIREMENTS.that(
    8,
    "a leader with fewer in-sync replicas than min.insync.replicas writes no marker: "
    "NOT_ENOUGH_REPLICAS",
    source="Partition.appendRecordsToLeader",
    until="3.6",
)
def too_few(target: Target) -> None:
    topic = target.topic(configs={"min.insync.replicas": "2"})
    expect_error(
        end_at(target, topic, (4000, 0)), ErrorCode.NOT_ENOUGH_REPLICAS, "one replica, two demanded"
    )


@REQUIREMENTS.that(
    9,
    "DescribeProducers shows no open transaction after the marker",
    source="KIP-664; DescribeProducers",
)
def not_described_as_open(target: Target) -> None:
    topic = target.topic()
    transaction = TransactionAt(target, topic)
    transaction.wrote(0, 2)
    row = described_producer(target, topic, transaction.producer_id)
    expect_equal(
        (row.current_txn_start_offset, row.coordinator_epoch, row.last_sequence),
        (0, -1, 1),
        "start, coordinator epoch, sequence while open",
    )
    expect_error(
        end_at(target, topic, transaction.producer, commits=False, coordinator_epoch=9),
        ErrorCode.NONE,
        "the marker of an administrator",
    )
    row = described_producer(target, topic, transaction.producer_id)
    expect_equal(
        (row.current_txn_start_offset, row.coordinator_epoch, row.last_sequence),
        (-1, 9, 1),
        "start, coordinator epoch, sequence afterwards",
    )


@REQUIREMENTS.that(
    10,
    "a marker of transaction.version 2 must have a later epoch than the open transaction: the same "
    "one is that of the transaction before",
    source="KIP-1228; KAFKA-19446",
    since="4.2",
)
def marker_of_the_transaction_before(target: Target) -> None:
    version = next(target.versions(ApiKey.WRITE_TXN_MARKERS, since=NAMES_LEVEL_SINCE))
    topic = target.topic()
    transaction = TransactionAt(target, topic)
    transaction.wrote(0, 2)
    producer_id, epoch = transaction.producer
    for producer_epoch, expected, start in (
        (epoch, ErrorCode.INVALID_PRODUCER_EPOCH, 0),
        (epoch + 1, ErrorCode.NONE, -1),
    ):
        row = marker((producer_id, producer_epoch), topics={topic.name: [0]})
        row.transaction_version = BUMPS_EPOCHS
        ((_, error),) = write_markers(target, topic.leader, row, version=version).items()
        expect_error(error, expected, f"epoch {producer_epoch} in an open transaction of {epoch}")
        found = described_producer(target, topic, producer_id)
        expect_equal(found.current_txn_start_offset, start, "start of the open transaction")
