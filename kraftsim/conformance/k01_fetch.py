"""Fetch (1) by consumers without a session: what is returned, how long the leader waits, and the
limits of bytes.

Source: KIP-74, KIP-227, KIP-320, KIP-516; KafkaApis.handleFetchRequest, ReplicaManager.readFromLog,
DelayedFetch.
"""

import time
from collections.abc import Callable

from kraftsim.conformance.batches import batch, filled_topic, produce
from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target, TargetTopic
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import (
    FIRST_SESSION_EPOCH,
    READ_COMMITTED,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.records.batches import split_batches

REQUIREMENTS = Requirements("fetch", 1, "Reading a partition")
HANDLER = "KafkaApis.handleFetchRequest"
FORMAT_2_SINCE = 4
"""The first version of Fetch with message format 2 in responses; for older ones batches are
converted.
"""
IDS_SINCE, EPOCHS_SINCE, LAST_EPOCHS_SINCE, SESSIONS_SINCE, LOG_START_SINCE = 13, 9, 12, 7, 5
PLENTY = 1 << 20
NO_ID = bytes([1]) * 16
NO_ISOLATION = 5
LONG_MS, SHORT_MS = 3000, 400
Change = Callable[[FetchPartition], None]


def fetch_request(
    topic: TargetTopic,
    version: int,
    offset: int = 0,
    *,
    partition: int = 0,
    max_bytes: int = PLENTY,
    partition_max_bytes: int = PLENTY,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    change: Change | None = None,
) -> FetchRequest:
    """Return a request for one partition, without a session; `change` may set further fields."""
    row = FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes
    )
    if change is not None:
        change(row)
    asked = (
        FetchTopic(topic=topic.name, partitions=[row])
        if version < IDS_SINCE
        else FetchTopic(topic_id=topic.topic_id, partitions=[row])
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=[asked]
    )


def fetch_one(
    target: Target, topic: TargetTopic, asked: FetchRequest, version: int
) -> PartitionData:
    """Send the request to the leader, and return the row of the only partition."""
    with target.peer(topic.leader) as peer:
        answer = peer.ask(asked, version, FetchResponse)
    expect_error(answer.error_code, ErrorCode.NONE, f"version {version}: the top-level error")
    expect_equal(len(answer.responses), 1, f"version {version}: topics of the answer")
    expect_equal(
        len(answer.responses[0].partitions), 1, f"version {version}: partitions of the answer"
    )
    return answer.responses[0].partitions[0]


def fetched_records(target: Target, topic: TargetTopic) -> bytes:
    """Return the content of the only partition of a small topic, in message format 2 and without a
    partial batch at the end.
    """
    version = target.newest(ApiKey.FETCH)
    row = fetch_one(
        target, topic, fetch_request(topic, version, partition_max_bytes=PLENTY), version
    )
    expect_error(row.error_code, ErrorCode.NONE, "reading back")
    return bytes(row.records or b"")


def _first_offsets(row: PartitionData) -> list[int]:
    return [found.base_offset for found in split_batches(bytes(row.records or b""))]


def _refused(
    target: Target,
    topic: TargetTopic,
    error: ErrorCode,
    what: str,
    versions: list[int],
    offset: int = 0,
    change: Change | None = None,
    partition: int = 0,
) -> None:
    for version in versions:
        row = fetch_one(
            target,
            topic,
            fetch_request(topic, version, offset, change=change, partition=partition),
            version,
        )
        expect_error(row.error_code, error, f"version {version}, {what}")
        offsets = (row.high_watermark, row.last_stable_offset, row.log_start_offset)
        expect_equal(
            offsets,
            (-1, -1, -1),
            f"version {version}, {what}: high watermark, last stable offset, log start",
        )
        expect_equal(bytes(row.records or b""), b"", f"version {version}, {what}: records")


def _versions(target: Target, since: int = FORMAT_2_SINCE) -> list[int]:
    return list(target.versions(ApiKey.FETCH, since=since))


@REQUIREMENTS.that(
    1,
    "records are returned as they were produced, in whole batches, in every version",
    source=HANDLER,
)
def reads_back(target: Target) -> None:
    topic = target.topic()
    sent = [batch(3), batch(1), batch(2)]
    with target.peer(topic.leader) as peer:
        for records in sent:
            produce(peer, topic.name, records)
    for version in _versions(target):
        row = fetch_one(target, topic, fetch_request(topic, version), version)
        expect_error(row.error_code, ErrorCode.NONE, f"version {version}")
        expect_equal(
            (row.high_watermark, row.last_stable_offset),
            (6, 6),
            f"version {version}: high watermark, last stable offset",
        )
        expect_equal(
            row.log_start_offset,
            0 if version >= LOG_START_SINCE else -1,
            f"version {version}: log start offset",
        )
        expect_equal(
            row.aborted_transactions,
            None,
            f"version {version}: aborted transactions of uncommitted reading",
        )
        expect_equal(
            _first_offsets(row), [0, 3, 4], f"version {version}: first offsets of the batches"
        )
        found = [
            record.value
            for each in split_batches(bytes(row.records or b""))
            for record in each.records()
        ]
        expect_equal(
            found,
            [
                record.value
                for data in sent
                for each in split_batches(data)
                for record in each.records()
            ],
            f"version {version}: values",
        )
        expect(
            all(each.crc_is_valid() for each in split_batches(bytes(row.records or b""))),
            f"version {version}: a checksum is wrong",
        )


@REQUIREMENTS.that(
    2,
    "an offset inside a batch returns that whole batch first",
    source="FileRecords.searchForOffsetWithSize",
)
def inside_a_batch(target: Target) -> None:
    topic = filled_topic(target, batches=3, records=4)
    for version in _versions(target):
        for offset, expected in ((4, [4, 8]), (5, [4, 8]), (7, [4, 8]), (8, [8]), (11, [8])):
            row = fetch_one(target, topic, fetch_request(topic, version, offset), version)
            expect_equal(
                _first_offsets(row),
                expected,
                f"version {version}, from offset {offset}: first offsets",
            )


@REQUIREMENTS.that(
    3,
    "a fetch at the log end offset returns no records, one beyond it or below 0 returns "
    "OFFSET_OUT_OF_RANGE",
    source="UnifiedLog.read; OffsetOutOfRangeException",
)
def out_of_range(target: Target) -> None:
    topic = filled_topic(target, batches=2)
    for version in _versions(target):
        row = fetch_one(target, topic, fetch_request(topic, version, 2), version)
        expect_error(row.error_code, ErrorCode.NONE, f"version {version}, at the end")
        expect_equal(
            (row.high_watermark, bytes(row.records or b"")),
            (2, b""),
            f"version {version}, at the end: high watermark, records",
        )
    for offset in (3, 1000, -1):
        _refused(
            target,
            topic,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset}",
            _versions(target),
            offset,
        )


@REQUIREMENTS.that(
    4,
    "an unknown topic or partition returns UNKNOWN_TOPIC_OR_PARTITION, an unknown topic id "
    "UNKNOWN_TOPIC_ID",
    source="KIP-516",
)
def unknown_partitions(target: Target) -> None:
    topic = target.topic()
    absent = TargetTopic(name=target.fresh_name("absent"), topic_id=NO_ID, leader=topic.leader)
    by_name = [version for version in _versions(target) if version < IDS_SINCE]
    _refused(target, absent, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "an unknown topic", by_name)
    _refused(
        target,
        absent,
        ErrorCode.UNKNOWN_TOPIC_ID,
        "an unknown topic id",
        _versions(target, since=IDS_SINCE),
    )
    _refused(
        target,
        topic,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "an unknown partition",
        _versions(target),
        partition=5,
    )


@REQUIREMENTS.that(
    5, "a leader epoch above the leader's returns UNKNOWN_LEADER_EPOCH", source="KIP-320"
)
def unknown_leader_epoch(target: Target) -> None:
    topic = filled_topic(target, batches=1)

    def ahead(row: FetchPartition) -> None:
        row.current_leader_epoch = 1000

    _refused(
        target,
        topic,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        "epoch 1000",
        _versions(target, since=EPOCHS_SINCE),
        change=ahead,
    )


@REQUIREMENTS.that(
    6,
    "a fetch beyond the end of the leader's epoch returns the diverging epoch and its end offset",
    source="KIP-595: diverging epochs",
)
def diverging_epoch(target: Target) -> None:
    topic = filled_topic(target, batches=3)

    def of_epoch_zero(row: FetchPartition) -> None:
        row.last_fetched_epoch = 0

    for version in _versions(target, since=LAST_EPOCHS_SINCE):
        row = fetch_one(
            target, topic, fetch_request(topic, version, 20, change=of_epoch_zero), version
        )
        expect_error(row.error_code, ErrorCode.NONE, f"version {version}")
        diverging = (row.diverging_epoch.epoch, row.diverging_epoch.end_offset)
        expect_equal(diverging, (0, 3), f"version {version}: epoch and end of what both share")
        expect_equal(bytes(row.records or b""), b"", f"version {version}: records")


@REQUIREMENTS.that(
    7, "at least one whole batch is returned, whatever the limits of bytes", source="KIP-74"
)
def one_batch_at_least(target: Target) -> None:
    topic = filled_topic(target, batches=3)
    for version in _versions(target):
        for max_bytes, partition_max_bytes in ((1, PLENTY), (PLENTY, 1), (0, PLENTY), (PLENTY, 0)):
            row = fetch_one(
                target,
                topic,
                fetch_request(
                    topic, version, max_bytes=max_bytes, partition_max_bytes=partition_max_bytes
                ),
                version,
            )
            expect_equal(
                _first_offsets(row),
                [0],
                f"version {version}, limits {max_bytes} and {partition_max_bytes}: first offsets",
            )


@REQUIREMENTS.that(8, "the limit of a partition applies after the first batch", source="KIP-74")
def partition_limit(target: Target) -> None:
    topic = filled_topic(target, batches=10)
    for version in _versions(target):
        one = len(
            bytes(
                fetch_one(
                    target, topic, fetch_request(topic, version, partition_max_bytes=1), version
                ).records
                or b""
            )
        )
        limit = one * 3 + one // 2
        row = fetch_one(
            target, topic, fetch_request(topic, version, partition_max_bytes=limit), version
        )
        expect_equal(
            _first_offsets(row),
            [0, 1, 2],
            f"version {version}, room for three batches and a half: first offsets",
        )
        expect(
            len(bytes(row.records or b"")) <= limit,
            f"version {version}: {len(bytes(row.records or b''))} bytes, the limit is {limit}",
        )


@REQUIREMENTS.that(
    9,
    "a read_committed fetch returns a list of aborted transactions, here an empty one",
    source="KIP-98",
)
def committed_reading(target: Target) -> None:
    topic = filled_topic(target, batches=1)
    for version in _versions(target):
        asked = fetch_request(topic, version)
        asked.isolation_level = READ_COMMITTED
        row = fetch_one(target, topic, asked, version)
        expect_equal(
            (row.aborted_transactions, _first_offsets(row)),
            ([], [0]),
            f"version {version}: aborted transactions, first offsets",
        )


@REQUIREMENTS.that(
    10,
    "a leader without min_bytes waits for max_wait_ms, and then returns what it has",
    source="DelayedFetch",
)
def waits(target: Target) -> None:
    topic = filled_topic(target, batches=2)
    version = target.newest(ApiKey.FETCH)
    for offset, min_bytes, expected in ((2, 1, []), (0, PLENTY, [0, 1])):
        started = time.monotonic()
        row = fetch_one(
            target,
            topic,
            fetch_request(topic, version, offset, max_wait_ms=SHORT_MS, min_bytes=min_bytes),
            version,
        )
        took_ms = (time.monotonic() - started) * 1000
        expect_equal(
            _first_offsets(row),
            expected,
            f"from offset {offset}, at least {min_bytes} bytes: first offsets",
        )
        expect(
            SHORT_MS * 0.9 <= took_ms < LONG_MS,
            f"answered after {took_ms:.0f} ms, max_wait_ms is {SHORT_MS}",
        )


@REQUIREMENTS.that(
    11,
    "a waiting fetch completes as soon as records are produced",
    source="DelayedFetch; ReplicaManager.tryCompleteActions",
)
def woken(target: Target) -> None:
    topic = filled_topic(target, batches=1)
    version = target.newest(ApiKey.FETCH)
    asked = fetch_request(topic, version, 1, max_wait_ms=LONG_MS * 5)
    with target.peer(topic.leader) as reader, target.peer(topic.leader) as writer:
        correlation_id = reader.send(asked, version)
        expect(reader.is_silent(0.2), "a fetch at the end is answered at once")
        started = time.monotonic()
        produce(writer, topic.name, batch(2))
        answer = reader.receive(asked, version, correlation_id, FetchResponse)
    expect_equal(_first_offsets(answer.responses[0].partitions[0]), [1], "first offsets")
    expect(time.monotonic() - started < LONG_MS / 1000, "the fetch kept waiting")


@REQUIREMENTS.that(
    12,
    "a fetch of no partitions, or with an error, does not wait",
    source="ReplicaManager.fetchMessages",
)
def does_not_wait(target: Target) -> None:
    topic = filled_topic(target, batches=1)
    version = target.newest(ApiKey.FETCH)
    started = time.monotonic()
    fetch_one(
        target, topic, fetch_request(topic, version, 1, max_wait_ms=LONG_MS, min_bytes=0), version
    )
    fetch_one(target, topic, fetch_request(topic, version, 1000, max_wait_ms=LONG_MS), version)
    with target.peer(topic.leader) as peer:
        answer = peer.ask(
            FetchRequest(max_wait_ms=LONG_MS, min_bytes=1, max_bytes=PLENTY), version, FetchResponse
        )
    expect_equal(answer.responses, [], "topics of an answer to nothing")
    expect(time.monotonic() - started < LONG_MS / 1000, "an answer that needs no waiting came late")


@REQUIREMENTS.that(
    13, "an unknown session returns FETCH_SESSION_ID_NOT_FOUND and no topics", source="KIP-227"
)
def unknown_session(target: Target) -> None:
    topic = filled_topic(target, batches=1)
    for version in _versions(target, since=SESSIONS_SINCE):
        for session_id, session_epoch in ((77, 1), (77, 5), (0, 5)):
            asked = fetch_request(topic, version)
            asked.session_id, asked.session_epoch = session_id, session_epoch
            with target.peer(topic.leader) as peer:
                answer = peer.ask(asked, version, FetchResponse)
            expect_error(
                answer.error_code,
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"version {version}, session {session_id} epoch {session_epoch}",
            )
            expect_equal(
                (answer.session_id, answer.responses),
                (0, []),
                f"version {version}: session, topics",
            )


@REQUIREMENTS.that(
    14,
    "a request to create a session gets a full response, whether or not a session is created",
    source="KIP-227",
)
def opening_a_session(target: Target) -> None:
    topic = filled_topic(target, batches=2)
    for version in _versions(target, since=SESSIONS_SINCE):
        asked = fetch_request(topic, version)
        asked.session_epoch = FIRST_SESSION_EPOCH
        with target.peer(topic.leader) as peer:
            answer = peer.ask(asked, version, FetchResponse)
        expect_error(answer.error_code, ErrorCode.NONE, f"version {version}")
        expect(answer.session_id >= 0, f"version {version}: session {answer.session_id}")
        expect_equal(
            _first_offsets(answer.responses[0].partitions[0]),
            [0, 1],
            f"version {version}: first offsets",
        )


@REQUIREMENTS.that(
    15,
    "an unknown isolation level returns UNKNOWN_SERVER_ERROR: up to version 12 for each "
    "partition, since version 7 also at the top level",
    source="getErrorResponse",
)
def no_isolation(target: Target) -> None:
    topic = filled_topic(target, batches=1)
    for version in _versions(target):
        asked = fetch_request(topic, version)
        asked.isolation_level = NO_ISOLATION
        asked.topics[0].partitions.append(
            FetchPartition(partition=9, fetch_offset=0, partition_max_bytes=PLENTY)
        )
        with target.peer(topic.leader) as peer:
            answer = peer.ask(asked, version, FetchResponse)
        error = ErrorCode.UNKNOWN_SERVER_ERROR
        if version >= SESSIONS_SINCE:
            expect_error(answer.error_code, error, f"version {version}: the top-level error")
        rows = [
            (row.partition_index, row.error_code, row.high_watermark)
            for name in answer.responses
            for row in name.partitions
        ]
        expect_equal(
            rows,
            [] if version >= IDS_SINCE else [(0, error, -1), (9, error, -1)],
            f"version {version}: partitions",
        )
