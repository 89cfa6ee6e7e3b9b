"""Control records: transaction markers, the leader change of the metadata log, header and footer of
its snapshots.
"""

from pathlib import Path

import pytest

from protocol.malformed import MalformedMessage
from protocol.records.batches import RecordBatch, split_batches
from protocol.records.control_records import (
    MESSAGES,
    ControlType,
    Endpoint,
    EndTxnMarker,
    KRaftVersionRecord,
    LeaderChangeMessage,
    RegisteredVoter,
    VotersRecord,
    build_control_record,
    build_leader_change,
    build_transaction_marker,
    control_type,
    parse_control_record,
)

GOLDEN = Path(__file__).parent / "kafka_3_9_1"


def test_a_commit_marker_is_built_byte_for_byte() -> None:
    """A test vector: producer id 4000, epoch 3, coordinator epoch 12, at offset 110 with leader
    epoch 7.
    """
    marker = build_transaction_marker(
        commits=True,
        producer_id=4000,
        producer_epoch=3,
        coordinator_epoch=12,
        timestamp=1_700_000_000_000,
        base_offset=110,
        leader_epoch=7,
    )
    assert marker.hex() == (
        "000000000000006e00000042000000070267bf99af0030000000000000018bcfe568000000018bcfe568000000000000000fa00003ffffffff00000001200000000800"
        "0000010c00000000000c00"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"commits": False},
        {"producer_id": 4001},
        {"producer_epoch": 4},
        {"coordinator_epoch": 13},
        {"timestamp": 1_700_000_000_001},
        {"base_offset": 1},
        {"leader_epoch": 8},
    ],
)
def test_markers_that_differ_in_anything_have_other_bytes(change: dict[str, int]) -> None:
    """Built markers are kept for the other partitions of the same transaction."""
    same = {
        "commits": True,
        "producer_id": 4000,
        "producer_epoch": 3,
        "coordinator_epoch": 12,
        "timestamp": 1_700_000_000_000,
    }
    first = build_transaction_marker(**same)
    assert build_transaction_marker(**{**same, **change}) != first
    assert build_transaction_marker(**same) == first


@pytest.mark.parametrize("position, kind", [(0, ControlType.COMMIT), (2, ControlType.ABORT)])
def test_markers_of_apache_kafka_are_read_and_built_byte_for_byte(
    position: int, kind: ControlType
) -> None:
    batch = list(split_batches((GOLDEN / "golden-0" / "00000000000000000021.log").read_bytes()))[
        position
    ]
    record = next(batch.records())
    assert batch.is_control and batch.is_transactional and control_type(record.key) is kind
    marker = parse_control_record(record.key, record.value)
    assert marker == EndTxnMarker(coordinator_epoch=0)
    built = build_transaction_marker(
        commits=kind is ControlType.COMMIT,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp=record.timestamp,
        base_offset=batch.base_offset,
        leader_epoch=batch.partition_leader_epoch,
    )
    assert built == batch.view()


def test_the_leader_change_of_apache_kafka_is_built_byte_for_byte() -> None:
    """The first batch of a metadata log."""
    batch = RecordBatch((GOLDEN / "__cluster_metadata-0" / "00000000000000000000.log").read_bytes())
    record = next(batch.records())
    found = parse_control_record(record.key, record.value)
    assert isinstance(found, LeaderChangeMessage) and found.leader_id == 1
    built = build_leader_change(
        leader_id=1,
        voters=[1],
        granting_voters=[1],
        base_offset=0,
        leader_epoch=1,
        timestamp=record.timestamp,
    )
    assert built == batch.view()


def test_voters_records_round_trip() -> None:
    """No release writes these with a static quorum, so there is no golden file; the layout is in
    the drift check.
    """
    voters = VotersRecord(
        voters=[
            RegisteredVoter(
                voter_id=1,
                voter_directory_id=bytes(range(16)),
                endpoints=[Endpoint(name="C", host="h", port=65535)],
            )
        ]
    )
    assert parse_control_record(*build_control_record(ControlType.KRAFT_VOTERS, voters)) == voters
    version = KRaftVersionRecord(k_raft_version=1)
    assert build_control_record(ControlType.KRAFT_VERSION, version) == (
        b"\x00\x00\x00\x05",
        b"\x00\x00\x00\x01\x00",
    )


def test_every_control_record_type_has_a_message() -> None:
    assert list(MESSAGES) == list(ControlType)


def test_a_newer_control_record_type_is_skipped() -> None:
    """Readers must ignore control records that they do not know (ControlRecordType)."""
    assert control_type(b"\x00\x00\x00\x63") is None
    assert parse_control_record(b"\x00\x00\x00\x63", b"anything") is None


@pytest.mark.parametrize(
    "key, value",
    [
        (None, b"\x00\x00"),
        (b"\x00\x00\x00", b"\x00\x00"),
        (b"\x00\x00\x00\x01", None),
        (b"\x00\x00\x00\x01", b"\x00\x00\x00"),
    ],
)
def test_a_truncated_control_record_is_malformed(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(MalformedMessage):
        parse_control_record(key, value)


def test_a_newer_marker_version_is_read_as_far_as_known() -> None:
    """A newer version only adds fields."""
    assert parse_control_record(
        b"\x00\x00\x00\x01", b"\x00\x05\x00\x00\x00\x0c\x01"
    ) == EndTxnMarker(coordinator_epoch=12)
