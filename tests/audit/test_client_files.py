"""What an application recorded and what a capture shows becomes the tables of clients: who was
acknowledged what, which transactions ended how, what a consumer returned.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kraftsim.audit.clients.staging import group_hash, stage_clients
from protocol.api_keys import ApiKey
from protocol.messages.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.messages.k01_fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from protocol.records.batches import build_batch
from protocol.records.control_records import ControlType, EndTxnMarker, build_control_record
from protocol.records.record import Record
from protocol.requests import request_chunks, response_chunks
from protocol.schema import Message
from protocol.uuids import uuid_text
from tests.audit.staged_tables import replica, write_table
from tests.inspect.packets import Conversation, pcap

TOPIC, TOPIC_ID = "orders", bytes(range(16))
TRANSACTION = "pay-1"
Exchange = tuple[ApiKey, int, Message, Message]


def staged(root: Path, table: str) -> list[dict[str, Any]]:
    """Return the rows of a table, in the order of the source."""
    rows = [
        row
        for file in sorted((root / table).glob("*.parquet"))
        for row in pq.read_table(file).to_pylist()
    ]
    return sorted(rows, key=lambda row: (row["source"], row["line"]))


def data(base_offset: int, records: int, sequence: int, *, producer_id: int = 7) -> bytes:
    """Return a transactional batch."""
    return build_batch(
        [Record(timestamp=1_700_000_000_000, value=b"v") for _ in range(records)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=2,
        base_sequence=sequence,
        transactional=True,
    )


def marker(base_offset: int, kind: ControlType, *, producer_id: int = 7) -> bytes:
    """Return a marker."""
    key, value = build_control_record(kind, EndTxnMarker(coordinator_epoch=0))
    return build_batch(
        [Record(timestamp=1_700_000_000_000, key=key, value=value)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=2,
        transactional=True,
        control=True,
    )


def captured(file: Path, exchanges: list[Exchange]) -> Path:
    """Write a capture of one connection."""
    said = Conversation().open()
    for number, (key, version, request, response) in enumerate(exchanges):
        asked = b"".join(request_chunks(key, version, number, "app", request))
        said.send(asked, from_client=True)
        said.send(b"".join(response_chunks(key, version, number, response)), from_client=False)
    file.write_bytes(pcap(said.packets))
    return file


def produce(records: bytes, base_offset: int, error_code: int = 0) -> Exchange:
    """A Produce by topic id, as since 4.1."""
    return (
        ApiKey.PRODUCE,
        13,
        ProduceRequest(
            transactional_id=TRANSACTION,
            acks=-1,
            topic_data=[
                TopicProduceData(
                    topic_id=TOPIC_ID,
                    partition_data=[PartitionProduceData(index=3, records=records)],
                )
            ],
        ),
        ProduceResponse(
            responses=[
                TopicProduceResponse(
                    topic_id=TOPIC_ID,
                    partition_responses=[
                        PartitionProduceResponse(
                            index=3, base_offset=base_offset, error_code=error_code
                        )
                    ],
                )
            ]
        ),
    )


def end(*, committed: bool, error_code: int = 0) -> Exchange:
    """An EndTxn."""
    return (
        ApiKey.END_TXN,
        3,
        EndTxnRequest(
            transactional_id=TRANSACTION, committed=committed, producer_id=7, producer_epoch=2
        ),
        EndTxnResponse(error_code=error_code),
    )


def test_a_capture_shows_what_was_acknowledged_and_how_it_ended(tmp_path: Path) -> None:
    """A refused batch is not acknowledged; a refused EndTxn ends nothing; offsets of the group
    belong to the transaction. The disks know the name of the topic id.
    """
    offsets: Exchange = (
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        TxnOffsetCommitRequest(
            transactional_id=TRANSACTION,
            group_id="readers",
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="input",
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=1, committed_offset=44, committed_metadata=""
                        )
                    ],
                )
            ],
            producer_id=7,
            producer_epoch=2,
        ),
        TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name="input", partitions=[TxnOffsetCommitResponsePartition(partition_index=1)]
                )
            ]
        ),
    )
    exchanges = [
        produce(data(0, 3, 0), 100),
        produce(data(0, 2, 3), -1, error_code=6),
        offsets,
        end(committed=True, error_code=51),
        end(committed=True),
        produce(data(0, 1, 5), 104),
        end(committed=False),
        produce(data(0, 1, 6), 106),
    ]
    write_table(tmp_path, "replicas", [replica(1, 0, topic=TOPIC, topic_id=uuid_text(TOPIC_ID))])
    stage_clients(tmp_path, [], [captured(tmp_path / "talk.pcap", exchanges)])
    sent = staged(tmp_path, "client_acknowledged")
    assert [
        (row["acknowledged_offset"], row["records"], row["sequence"], row["outcome"])
        for row in sent
    ] == [(100, 3, 0, "committed"), (104, 1, 5, "aborted"), (106, 1, 6, None)]
    assert {(row["topic"], row["partition"], row["producer_id"], row["acks"]) for row in sent} == {
        (TOPIC, 3, 7, -1)
    }
    ends = staged(tmp_path, "client_transactions")
    assert [(row["outcome"], row["records"]) for row in ends] == [("committed", 3), ("aborted", 1)]
    (commit,) = staged(tmp_path, "client_commits")
    assert (commit["group_id"], commit["topic"], commit["partition"]) == ("readers", "input", 1)
    assert (commit["committed_offset"], commit["outcome"]) == (44, "committed")


@pytest.mark.parametrize(("isolation", "offsets"), [(1, [0, 6]), (0, [0, 2, 6])])
def test_aborted_batches_of_a_fetch_count_as_skipped(
    isolation: int, offsets: list[int], tmp_path: Path
) -> None:
    """From the first offset of the aborted transaction to its marker, for its producer only."""
    log = [
        data(0, 2, 0, producer_id=8),
        data(2, 2, 0),
        marker(4, ControlType.ABORT),
        marker(5, ControlType.COMMIT, producer_id=8),
        data(6, 1, 2),
        marker(7, ControlType.COMMIT),
    ]
    fetch: Exchange = (
        ApiKey.FETCH,
        12,
        FetchRequest(
            isolation_level=isolation,
            topics=[FetchTopic(topic=TOPIC, partitions=[FetchPartition(fetch_offset=0)])],
        ),
        FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic=TOPIC,
                    partitions=[
                        PartitionData(
                            high_watermark=8,
                            aborted_transactions=[
                                AbortedTransaction(producer_id=7, first_offset=2)
                            ],
                            records=b"".join(log),
                        )
                    ],
                )
            ]
        ),
    )
    stage_clients(tmp_path, [], [captured(tmp_path / "talk.pcap", [fetch])])
    assert [row["read_offset"] for row in staged(tmp_path, "client_reads")] == offsets


def test_a_follower_is_no_consumer(tmp_path: Path) -> None:
    fetch: Exchange = (
        ApiKey.FETCH,
        12,
        FetchRequest(replica_id=2),
        FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic=TOPIC, partitions=[PartitionData(records=data(0, 1, 0))]
                )
            ]
        ),
    )
    stage_clients(tmp_path, [], [captured(tmp_path / "talk.pcap", [fetch])])
    assert staged(tmp_path, "client_reads") == []


def test_recorded_lines_belong_to_the_transaction_that_ends_next(tmp_path: Path) -> None:
    """Of their transactional id; a transaction that is open at the end has no outcome."""
    place = {"topic": TOPIC, "partition": 0}
    lines: list[dict[str, object]] = [
        {"type": "acknowledged", "offset": 1, "transactional_id": "a", **place},
        {"type": "acknowledged", "offset": 2, "transactional_id": "b", **place},
        {"type": "transaction", "transactional_id": "a", "outcome": "aborted"},
        {"type": "acknowledged", "offset": 3, "transactional_id": "a", **place},
        {"type": "offset_committed", "group": "g", "offset": 9, "transactional_id": "a", **place},
        {"type": "transaction", "transactional_id": "a", "outcome": "committed", "time_ms": 5},
        {"type": "acknowledged", "offset": 4, "client": "app-1", "unique": True, **place},
        {"type": "read", "offset": 3, "isolation": "read_committed", "group": "g", **place},
    ]
    file = tmp_path / "app.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    stage_clients(tmp_path, [file], [])
    sent = staged(tmp_path, "client_acknowledged")
    assert [(row["acknowledged_offset"], row["outcome"], row["line"]) for row in sent] == [
        (1, "aborted", 1),
        (2, None, 2),
        (3, "committed", 4),
        (4, None, 7),
    ]
    assert (sent[3]["client"], sent[3]["is_unique"], sent[3]["acks"]) == ("app-1", True, -1)
    assert [row["outcome"] for row in staged(tmp_path, "client_commits")] == ["committed"]
    assert [row["isolation"] for row in staged(tmp_path, "client_reads")] == ["read_committed"]


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("readers", 1080410128),
        ("ledger", 1106662039),
        ("polygenelubricants", 0),
        ("\U0001f600", 1772899),
    ],
)
def test_groups_are_hashed_as_java_does(group: str, expected: int) -> None:
    """String.hashCode counts UTF-16 units, and Utils.abs of the smallest number is 0."""
    assert group_hash(group) == expected
