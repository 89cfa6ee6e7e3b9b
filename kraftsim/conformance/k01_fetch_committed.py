"""Fetch (1) and ListOffsets (2) with read_committed: the last stable offset, and aborted
transactions.

Source: KIP-98; Partition.readRecords, UnifiedLog.collectAbortedTransactions, DelayedFetch.
"""

import threading
import time

from kraftsim.conformance.batches import batch, produce, wall_ms
from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.k01_fetch import fetch_one, fetch_request
from kraftsim.conformance.marker_client import TransactionAt, end_at, expect_seen, read_at, seen
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target, TargetTopic
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import READ_COMMITTED, READ_UNCOMMITTED, PartitionData
from protocol.messages.k02_list_offsets import (
    CONSUMER_REPLICA_ID,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.records.batches import build_batch
from protocol.records.record import Record

REQUIREMENTS = Requirements("transactions", 13, "read_committed consumers")
READ = "KIP-98; Partition.readRecords"
ISOLATION_SINCE = 4
LISTED_SINCE = 2
LONG_MS, SHORT_MS = 5000, 500
SEGMENT_BYTES = 1 << 20
"""The smallest value that every release accepts."""


def _versions(target: Target) -> list[int]:
    return list(target.versions(ApiKey.FETCH, since=ISOLATION_SINCE))


def _latest(
    target: Target,
    topic: TargetTopic,
    version: int,
    isolation: int,
    timestamp: int = LATEST_TIMESTAMP,
) -> int:
    rows = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    asked = ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA_ID,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic.name, partitions=rows)],
    )
    with target.peer(topic.leader) as peer:
        row = peer.ask(asked, version, ListOffsetsResponse).topics[0].partitions[0]
    expect_error(
        row.error_code,
        ErrorCode.NONE,
        f"ListOffsets {version}, isolation {isolation}, timestamp {timestamp}",
    )
    return row.offset


@REQUIREMENTS.that(
    1,
    "read_committed returns records up to the first open transaction, read_uncommitted all of them",
    source=READ,
)
def bounded(target: Target) -> None:
    topic = target.topic()
    with target.peer(topic.leader) as peer:
        produce(peer, topic.name, batch(2))
    transaction = TransactionAt(target, topic)
    transaction.wrote(0, 3)
    with target.peer(topic.leader) as peer:
        produce(peer, topic.name, batch(1))
    for version in _versions(target):
        expect_seen(
            target, topic, 0, ([0], 2, 6, []), f"version {version}, committed", version=version
        )
        expect_seen(
            target,
            topic,
            0,
            ([0, 2, 5], 2, 6, None),
            f"version {version}, all",
            version=version,
            isolation=READ_UNCOMMITTED,
        )
        for offset in (2, 3, 6):
            expect_seen(
                target,
                topic,
                offset,
                ([], 2, 6, []),
                f"version {version}, committed, from offset {offset}",
                version=version,
            )


@REQUIREMENTS.that(
    2,
    "the response lists the aborted transactions in the range that is read, by producer id and "
    "first offset",
    source=READ,
)
def aborted(target: Target) -> None:
    topic = target.topic()
    one, other = TransactionAt(target, topic), TransactionAt(target, topic)
    one.wrote(0, 2)
    other.wrote(0)
    one.ended(commits=False)
    other.ended(commits=True)
    one.wrote(2)
    one.ended(commits=False)
    for version in _versions(target):
        expect_seen(
            target,
            topic,
            0,
            ([0, 2, 3, 4, 5, 6], 7, 7, [(one.producer_id, 0), (one.producer_id, 5)]),
            f"version {version}",
            version=version,
        )
        expect_seen(
            target,
            topic,
            3,
            ([3, 4, 5, 6], 7, 7, [(one.producer_id, 0), (one.producer_id, 5)]),
            f"version {version}, from 3",
            version=version,
        )
        expect_seen(
            target,
            topic,
            4,
            ([4, 5, 6], 7, 7, [(one.producer_id, 5)]),
            f"version {version}, from 4",
            version=version,
        )
        expect_seen(
            target, topic, 7, ([], 7, 7, []), f"version {version}, from the end", version=version
        )
        expect_seen(
            target,
            topic,
            0,
            ([0, 2, 3, 4, 5, 6], 7, 7, None),
            f"version {version}, all",
            version=version,
            isolation=READ_UNCOMMITTED,
        )


@REQUIREMENTS.that(3, "an aborted transaction without records is not listed", source="KAFKA-10702")
def empty(target: Target) -> None:
    topic = target.topic()
    expect_error(
        end_at(target, topic, (4000, 0), commits=False), ErrorCode.NONE, "the abort of nothing"
    )
    expect_seen(target, topic, 0, ([0], 1, 1, []), "its marker alone")


@REQUIREMENTS.that(
    4,
    "a delayed response lists a transaction that was aborted during the wait",
    source="KAFKA-5376; DelayedFetch",
)
def waited(target: Target) -> None:
    topic = target.topic()
    transaction = TransactionAt(target, topic)
    transaction.wrote(0)
    version = min(target.newest(ApiKey.FETCH), 12)
    asked = fetch_request(topic, version, max_wait_ms=LONG_MS)
    asked.isolation_level = READ_COMMITTED
    answers: list[PartitionData] = []
    reader = threading.Thread(
        target=lambda: answers.append(fetch_one(target, topic, asked, version))
    )
    reader.start()
    time.sleep(SHORT_MS / 1000)
    expect_equal(answers, [], "answers before the end of the transaction")
    transaction.ended(commits=False)
    reader.join()
    expect(bool(answers), "the reader has no answer")
    expect_equal(
        seen(answers[0]), ([0, 1], 2, 2, [(transaction.producer_id, 0)]), "the delayed response"
    )


@REQUIREMENTS.that(
    5,
    "records above the last stable offset do not complete a read_committed fetch",
    source="DelayedFetch.tryComplete",
)
def not_woken(target: Target) -> None:
    topic = target.topic()
    transaction = TransactionAt(target, topic)
    transaction.wrote(0, 5)
    version = min(target.newest(ApiKey.FETCH), 12)
    for isolation, waits in ((READ_COMMITTED, True), (READ_UNCOMMITTED, False)):
        asked = fetch_request(topic, version, max_wait_ms=SHORT_MS)
        asked.isolation_level = isolation
        before = time.monotonic()
        fetch_one(target, topic, asked, version)
        expect_equal(
            time.monotonic() - before >= WAITED_S,
            waits,
            f"isolation {isolation}: waited to the end",
        )


@REQUIREMENTS.that(
    6,
    "ListOffsets with read_committed ends at the last stable offset",
    source="KIP-98; Partition.fetchOffsetForTimestamp",
)
def listed(target: Target) -> None:
    topic = target.topic()
    with target.peer(topic.leader) as peer:
        produce(peer, topic.name, batch(2))
    transaction = TransactionAt(target, topic)
    transaction.wrote(0, 3)
    for version in target.versions(ApiKey.LIST_OFFSETS, since=LISTED_SINCE):
        expect_equal(
            _latest(target, topic, version, READ_COMMITTED),
            2,
            f"version {version}, committed: the end",
        )
        expect_equal(
            _latest(target, topic, version, READ_UNCOMMITTED), 5, f"version {version}, all: the end"
        )
    transaction.ended(commits=True)
    for version in target.versions(ApiKey.LIST_OFFSETS, since=LISTED_SINCE):
        expect_equal(
            _latest(target, topic, version, READ_COMMITTED),
            6,
            f"version {version}, committed: the end after the commit",
        )


@REQUIREMENTS.that(
    7,
    "a timestamp that occurs only in an open transaction is not found with read_committed",
    source="KIP-98; Partition.fetchOffsetForTimestamp",
)
def timestamps(target: Target) -> None:
    topic = target.topic()
    transaction = TransactionAt(target, topic)
    transaction.wrote(0, 3)
    for version in target.versions(ApiKey.LIST_OFFSETS, since=LISTED_SINCE):
        found = [
            _latest(target, topic, version, isolation, 0)
            for isolation in (READ_COMMITTED, READ_UNCOMMITTED)
        ]
        expect_equal(found, [-1, 0], f"version {version}: offset of timestamp 0, committed and all")
    for version in target.versions(ApiKey.LIST_OFFSETS, since=7):
        expect_equal(
            _latest(target, topic, version, READ_COMMITTED, MAX_TIMESTAMP),
            -1,
            f"version {version}: offset of the greatest timestamp",
        )


@REQUIREMENTS.that(
    8,
    "a response without records for other reasons has no list of aborted transactions",
    source="ReplicaManager.readFromLog",
)
def without_a_list(target: Target) -> None:
    topic = target.topic()
    transaction = TransactionAt(target, topic)
    transaction.wrote(0)
    transaction.ended(commits=False)
    version = min(target.newest(ApiKey.FETCH), 12)
    beyond = read_at(target, topic, 9, version=version)
    expect_error(beyond.error_code, ErrorCode.OFFSET_OUT_OF_RANGE, "beyond the end")
    expect_equal(
        (beyond.last_stable_offset, beyond.aborted_transactions),
        (-1, None),
        "beyond the end: last stable offset, list",
    )


WAITED_S = SHORT_MS / 1000 * 0.8
"""The minimum duration of a wait, with a tolerance for clock differences."""


def _wait_behind(target: Target, waits: dict[int, bool]) -> None:
    """Open two transactions, one from 0 to 2, the other in 3 and 4, and check for each fetch offset
    whether the fetch waits.
    """
    topic = target.topic()
    TransactionAt(target, topic).wrote(0, 3)
    TransactionAt(target, topic).wrote(0, 2)
    version = min(target.newest(ApiKey.FETCH), 12)
    for offset, is_waiting in waits.items():
        asked = fetch_request(topic, version, offset, max_wait_ms=SHORT_MS)
        asked.isolation_level = READ_COMMITTED
        before = time.monotonic()
        expect_equal(
            seen(fetch_one(target, topic, asked, version))[0], [], f"from offset {offset}: batches"
        )
        expect_equal(
            time.monotonic() - before >= WAITED_S,
            is_waiting,
            f"from offset {offset}: waited to the end",
        )


@REQUIREMENTS.that(
    9,
    "a fetch from above the last stable offset returns empty at once",
    source="DelayedFetch.tryComplete",
    since="3.8",
    until="3.9",
)
def at_once_behind_it(target: Target) -> None:
    _wait_behind(target, {0: True, 1: False, 2: False, 3: False, 4: False, 5: False})


@REQUIREMENTS.that(
    10,
    "data in an older segment is returned at once, however little it is",
    source="DelayedFetch.tryComplete",
)
def older_segments(target: Target) -> None:
    topic = target.topic(configs={"segment.bytes": str(SEGMENT_BYTES)})
    with target.peer(topic.leader) as peer:
        for _ in range(2):
            large = build_batch([Record(timestamp=wall_ms(), value=bytes(SEGMENT_BYTES * 2 // 3))])
            expect_error(
                produce(peer, topic.name, large).error_code, ErrorCode.NONE, "a large batch"
            )
    version = min(target.newest(ApiKey.FETCH), 12)
    for offset, waits in ((0, False), (1, True)):
        asked = fetch_request(topic, version, offset, max_wait_ms=SHORT_MS, min_bytes=SEGMENT_BYTES)
        before = time.monotonic()
        expect_equal(
            seen(fetch_one(target, topic, asked, version))[0],
            [offset],
            f"from offset {offset}: batches",
        )
        expect_equal(
            time.monotonic() - before >= WAITED_S, waits, f"from offset {offset}: waited to the end"
        )


@REQUIREMENTS.that(
    11,
    "a fetch from the batch at the last stable offset waits; one from a later batch or the end "
    "of the log returns empty at once",
    source="LogSegment.read, DelayedFetch.tryComplete",
    since="4.0",
)
def at_once_behind_its_batch(target: Target) -> None:
    _wait_behind(target, {0: True, 1: True, 2: True, 3: False, 4: False, 5: False})
