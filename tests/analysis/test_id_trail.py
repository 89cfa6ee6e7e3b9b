"""The owners of producer-id blocks, read from the bytes of a metadata log and its snapshots, and
compared with the events of the run.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kraftsim.analysis.id_audit import ComparedIds, Holes, IdAudit, OwnerOfId, audit
from kraftsim.analysis.id_trail import (
    METADATA_DIRECTORY,
    NoMetadataLog,
    metadata_directories,
    read_trail,
)
from kraftsim.conformance.target import Target
from protocol.metadata.controller import NoOpRecord, ProducerIdsRecord
from protocol.metadata.registry import build_record
from protocol.records.batches import build_batch
from protocol.records.record import Record
from protocol.schema import Message
from protocol.storage.file_names import segment_file_name
from tests.apache_kafka.harness import ApacheKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCH = 3


def batch(base_offset: int, *records: Message) -> bytes:
    values = [
        Record(timestamp=1000 + base_offset, value=build_record(record, 0)) for record in records
    ]
    return build_batch(values, base_offset=base_offset, leader_epoch=EPOCH)


def given(broker_id: int, broker_epoch: int, next_producer_id: int) -> ProducerIdsRecord:
    return ProducerIdsRecord(
        broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=next_producer_id
    )


def write_log(
    place: Path, node: str, first_offset: int, records: list[Message], torn: int = 0
) -> Path:
    """Write each record as a batch, in segments of three."""
    directory = place / node / METADATA_DIRECTORY
    directory.mkdir(parents=True)
    for first in range(0, len(records), 3):
        batches = [
            batch(first_offset + first + index, record)
            for index, record in enumerate(records[first : first + 3])
        ]
        content = b"".join(batches)
        (directory / segment_file_name(first_offset + first)).write_bytes(
            content[: len(content) - torn]
        )
    return directory


LOG: list[Message] = [
    NoOpRecord(),
    given(1, 7, 1000),
    given(2, 8, 2000),
    given(1, 9, 2500),
    NoOpRecord(),
    given(2, 8, 3500),
]


def write_events(
    place: Path, blocks: list[tuple[int, int, int, int, int]], received: list[int], ids: list[int]
) -> None:
    facts = [
        dict(
            zip(
                ("offset", "broker_id", "broker_epoch", "first_producer_id", "next_producer_id"),
                block,
                strict=True,
            ),
            kind="ProducerIdBlockAllocated",
        )
        for block in blocks
    ]
    facts += [
        {
            "kind": "ProducerIdBlockReceived",
            "first_producer_id": first,
            "next_producer_id": first + 1000,
        }
        for first in received
    ]
    facts += [
        {"kind": "ProducerIdReturned", "producer_id": each, "producer_epoch": 0, "fresh": True}
        for each in ids
    ]
    lines = [
        json.dumps(
            {
                "run": "r",
                "node": "n",
                "incarnation": 1,
                "n": n,
                "t_ns": n,
                "wall_ms": n,
                "kind": fact.pop("kind"),
                **fact,
            }
        )
        for n, fact in enumerate(facts)
    ]
    (place / "events").mkdir()
    (place / "events" / "n.1.jsonl").write_text("\n".join(lines) + "\n")


def test_segments_and_snapshots_are_read_in_the_order_of_their_offsets(tmp_path: Path) -> None:
    """A snapshot precedes the record at its end offset; torn batches and records other than
    producer-id blocks are skipped.
    """
    directory = write_log(tmp_path, "controller-101", 10, LOG, torn=5)
    (directory / "00000000000000000012-0000000003.checkpoint").write_bytes(
        batch(0, given(-1, -1, 1000))
    )
    extent, rows = read_trail("controller-101", directory)
    assert (extent.first_offset, extent.next_offset, extent.segments, extent.snapshots) == (
        10,
        15,
        2,
        1,
    )
    assert [(row.is_snapshot, row.offset, row.broker_id, row.next_producer_id) for row in rows] == [
        (False, 11, 1, 1000),
        (True, 12, -1, 1000),
        (False, 13, 1, 2500),
    ], "the last record of each segment is torn"
    assert rows[0].value_bytes == 24 and rows[1].file_bytes > rows[1].value_bytes


def test_an_unreadable_log_reports_the_position(tmp_path: Path) -> None:
    directory = write_log(tmp_path, "controller-101", 0, LOG[:3])
    path = directory / segment_file_name(0)
    path.write_bytes(path.read_bytes() + bytes(80))
    extent, rows = read_trail("controller-101", directory)
    assert path.name in extent.trouble and len(rows) == 2


def test_a_directory_without_a_metadata_log_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NoMetadataLog, match="holds no metadata log"):
        metadata_directories(tmp_path)
    with pytest.raises(KeyError, match="controller-9 has no metadata log"):
        write_log(tmp_path, "controller-101", 0, LOG)
        audit(tmp_path, node="controller-9")


@pytest.mark.spark
def test_spark_finds_the_owner_of_each_producer_id_and_unowned_ids(
    tmp_path: Path, spark: "SparkSession", figures: Callable[..., None]
) -> None:
    """The longest log is read; blocks without an event are found, and blocks that are missing in
    the log.
    """
    write_log(tmp_path, "controller-101", 0, LOG[:3])
    write_log(tmp_path, "controller-102", 0, LOG)
    blocks = [
        (1, 1, 7, 0, 1000),
        (3, 1, 9, 2000, 2500),
        (5, 2, 8, 2500, 3500),
        (8, 2, 8, 3500, 4500),
    ]
    write_events(tmp_path, blocks, received=[0, 2000], ids=[0, 1, 2, 2000])
    found = audit(tmp_path, asked=(0, 1999, 2500, 3500), spark=spark)
    assert (found.extent.node, found.blocks, found.lost_ids) == ("controller-102", 4, 0)
    assert [
        (each.broker_id, each.incarnations, each.blocks, each.ids) for each in found.owners
    ] == [(1, 2, 2, 1500), (2, 1, 2, 2000)]
    assert [(each.broker_id, each.broker_epoch, each.offset) for each in found.asked] == [
        (1, 7, 1),
        (2, 8, 2),
        (2, 8, 5),
        (None, None, None),
    ]
    figures(blocks_in_the_log=len(blocks), blocks_read=sum(each.blocks for each in found.owners))
    assert found.compared == ComparedIds(same=3, unanswered=1, lost=0, contradicted=1)
    assert found.holes == Holes(never_received=2, never_used=2, ids_used=4, ids_burned=3496)


@pytest.mark.spark
def test_ids_from_records_replaced_by_a_snapshot_have_no_owner(
    tmp_path: Path, spark: "SparkSession", figures: Callable[..., None]
) -> None:
    """A snapshot (KIP-630) keeps only the end of the last block; the audit trail of KIP-730 is as
    long as the log.
    """
    directory = write_log(tmp_path, "controller-101", 3, LOG[3:])
    (directory / "00000000000000000003-0000000003.checkpoint").write_bytes(
        batch(0, given(-1, -1, 2000))
    )
    (directory / "00000000000000000005-0000000003.checkpoint").write_bytes(
        batch(0, given(-1, -1, 2500))
    )
    found: IdAudit = audit(tmp_path, asked=(1999, 2000), spark=spark)
    assert (found.blocks, found.lost_ids) == (2, 2000)
    assert found.asked == (
        OwnerOfId(producer_id=1999),
        OwnerOfId(producer_id=2000, broker_id=1, broker_epoch=9, offset=3),
    )
    assert [(kept.broker_id, kept.next_producer_id) for kept in found.snapshots] == [
        (-1, 2000),
        (-1, 2500),
    ]
    figures(owner_behind_a_snapshot=found.asked[0].broker_id)
    assert (
        "  ids 0 to 1999: owners unknown, a snapshot replaced their part of the log"
        in found.lines()
    )


@pytest.mark.interop
def test_a_metadata_log_of_apache_kafka_is_read_too() -> None:
    """The first block is allocated to the broker that received InitProducerId."""
    with ApacheKafka() as kafka:
        target = Target(kafka.bootstrap)
        ids = [target.producer_id()[0] for _ in range(3)]
        (directory,) = metadata_directories(kafka.directory).values()
        extent, rows = read_trail("apache", directory)
    assert not extent.trouble and extent.next_offset > extent.first_offset
    assert [
        (row.broker_id, row.next_producer_id, row.value_bytes, row.is_snapshot) for row in rows
    ] == [(1, 1000, 24, False)]
    assert ids == [0, 1, 2]
