"""Log directories as tables: a row for everything that kraftsim's writers wrote.

Source: the formats' KIPs, see `protocol.storage` and `protocol.records`.
"""

import json
import shutil
from pathlib import Path

import pytest

from kraftsim.audit import scan
from kraftsim.audit.judging import duckdb_tables
from kraftsim.audit.reading import segments
from kraftsim.audit.reading.pieces import Value
from kraftsim.audit.reading.remote import remote_pieces
from kraftsim.audit.scan import stage
from kraftsim.audit.tables import TABLES
from protocol.records.batches import RecordBatch, build_batch
from protocol.records.record import Record
from protocol.storage.file_names import segment_file_name
from protocol.storage.indexes import OffsetEntry, build_offset_index
from tests.audit.written_disks import (
    LOG_0,
    TIME,
    TOPIC_ID_TEXT,
    orders_batches,
    positions_of,
    row_counts,
    rows,
    write_log_dir,
)

PLACE = ("log_dir", "node_id", "directory", "topic", "partition", "file")


@pytest.fixture(name="disk", scope="module")
def _disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log_dir(tmp_path_factory.mktemp("disk") / "node")


def of(
    found: list[dict[str, Value]], topic: str, *, without: tuple[str, ...] = PLACE
) -> list[dict[str, Value]]:
    """Return the rows of a topic without the columns that say where they are."""
    return [
        {name: value for name, value in row.items() if name not in without}
        for row in found
        if row.get("topic") == topic
    ]


def test_a_sound_directory_has_no_problems_and_rows_in_all_tables(disk: Path) -> None:
    """Only remote files and the clients' tables come from elsewhere."""
    counts = row_counts(disk)
    assert "problems" not in counts
    read = {name for name in TABLES if "log_dir" in [each.name for each in TABLES[name].columns]}
    assert read - set(counts) == {"problems", "group_records"}


def test_log_directory_is_described_by_its_own_files(disk: Path) -> None:
    """meta.properties, .kafka_cleanshutdown, and the time of the newest file."""
    (row,) = rows(disk, "log_dirs")
    assert row.pop("newest_ms") == max(
        file.stat().st_mtime_ns // 1_000_000 for file in disk.rglob("*") if file.is_file()
    )
    assert row == {
        "log_dir": str(disk),
        "node_id": 1,
        "cluster_id": "c1",
        "directory_id": TOPIC_ID_TEXT,
        "version": 1,
        "is_clean": True,
        "has_metadata_log": True,
    }


def test_batches_are_read_from_their_headers(disk: Path) -> None:
    """Every header field, and what a marker says."""
    found = of(rows(disk, "batches"), "orders")
    batches = orders_batches()
    for row, content, position in zip(found, batches, positions_of(batches), strict=True):
        batch = RecordBatch(content)
        assert (row["position"], row["size"], row["crc"]) == (position, len(content), batch.crc)
        assert row["crc_valid"] and row["magic"] == 2 and row["segment_offset"] == 0
        assert row["base_offset"] == batch.base_offset and row["last_offset"] == batch.last_offset
        assert (row["producer_id"], row["producer_epoch"]) == (
            batch.producer_id,
            batch.producer_epoch,
        )
        assert (row["base_sequence"], row["last_sequence"]) == (
            batch.base_sequence,
            batch.last_sequence,
        )
        assert row["records"] == batch.record_count and row["max_ms"] == batch.max_timestamp
    assert [row["is_transactional"] for row in found] == [True, True, False, False]
    assert [row.get("control_type") for row in found] == [None, "ABORT", None, None]
    assert [row.get("coordinator_epoch") for row in found] == [None, 7, None, None]
    assert [row["compression"] for row in found] == ["none", "none", "zstd", "none"]
    kinds = ["CreateTime", "CreateTime", "LogAppendTime", "CreateTime"]
    assert [row["timestamp_type"] for row in found] == kinds
    assert [row.get("delete_horizon_ms") for row in found] == [None, None, None, TIME + 99]
    assert [row.get("first_ms") for row in found] == [TIME, TIME + 10, TIME + 20, None]


def test_checksums_are_null_where_they_are_not_computed(disk: Path) -> None:
    """Kafka's own topics are always checked: they are decoded."""
    found = rows(disk, "batches", with_crc=False)
    unchecked = {row["topic"] for row in found if "crc_valid" not in row}
    assert unchecked == {"orders"}


def test_messages_of_old_formats_are_batches_of_their_own(disk: Path) -> None:
    """A wrapper has the offset of its last message (KIP-31)."""
    found = of(rows(disk, "batches"), "old")
    assert [(row["magic"], row["base_offset"], row["last_offset"]) for row in found] == [
        (0, 0, 0),
        (1, 1, 1),
        (1, 2, 4),
    ]
    assert [(row["records"], row["compression"]) for row in found] == [
        (1, "none"),
        (1, "none"),
        (3, "gzip"),
    ]
    assert [row.get("max_ms") for row in found] == [None, TIME, TIME + 2]
    assert all(row["crc_valid"] for row in found)


def test_replica_is_what_its_files_say_together(disk: Path) -> None:
    """Ends of the log, and the checkpoints of the log directory."""
    (found,) = of(rows(disk, "replicas"), "orders")
    assert found == {
        "topic_id": TOPIC_ID_TEXT,
        "first_offset": 0,
        "end_offset": 7,
        "segments": 1,
        "first_segment_offset": 0,
        "log_start_offset": 1,
        "recovery_point": 6,
        "high_watermark": 7,
        "cleaned_until": 2,
        "is_future": False,
    }


def test_indexes_and_snapshots_are_read_entry_by_entry(disk: Path) -> None:
    """Each file beside a segment."""
    positions = positions_of(orders_batches())
    assert [
        (row["entry"], row["indexed_offset"], row["indexed_position"])
        for row in of(rows(disk, "offset_index"), "orders")
    ] == [(0, 3, positions[1]), (1, 5, positions[2])]
    assert [
        (row["indexed_ms"], row["indexed_offset"]) for row in of(rows(disk, "time_index"), "orders")
    ] == [(TIME + 10, 3), (TIME + 30, 5)]
    assert of(rows(disk, "aborted_transactions"), "orders") == [
        {
            "base_offset": 0,
            "producer_id": 1000,
            "first_offset": 0,
            "last_offset": 3,
            "last_stable_offset": 4,
        }
    ]
    assert of(rows(disk, "producer_snapshots"), "orders") == [
        {"snapshot_offset": 0},
        {
            "snapshot_offset": 7,
            "producer_id": 1000,
            "producer_epoch": 2,
            "last_sequence": 2,
            "last_offset": 2,
            "offset_delta": 2,
            "timestamp_ms": TIME + 10,
            "coordinator_epoch": 7,
            "transaction_first_offset": -1,
        },
    ]
    assert [
        (row["leader_epoch"], row["start_offset"])
        for row in of(rows(disk, "leader_epochs"), "orders")
    ] == [(1, 0), (2, 4)]


def test_metadata_log_and_its_snapshot_give_the_same_records(disk: Path) -> None:
    """Only the snapshot's rows have the end offset and epoch of its name."""
    found = rows(disk, "metadata_records")
    logged = [row for row in found if "snapshot_end_offset" not in row]
    snapshot = [row for row in found if row.get("snapshot_end_offset") == 5]
    types = ["TOPIC_RECORD", "PARTITION_RECORD", "PARTITION_CHANGE_RECORD", "PRODUCER_IDS_RECORD"]
    assert [row["type"] for row in logged] == types == [row["type"] for row in snapshot]
    assert [row["data"] for row in logged] == [row["data"] for row in snapshot]
    assert json.loads(str(logged[0]["data"])) == {"name": "orders", "topicId": TOPIC_ID_TEXT}
    assert [row["record_offset"] for row in logged] == [1, 2, 3, 4]
    assert {row["snapshot_epoch"] for row in snapshot} == {1}
    change = of(rows(disk, "metadata_partitions"), "__cluster_metadata")[1]
    assert change["is_change"] and change["isr"] == "[1]"
    assert not {"leader", "replicas", "registered_leader_epoch"} & set(change)
    block = of(rows(disk, "producer_id_blocks"), "__cluster_metadata")[0]
    assert (block["broker_id"], block["broker_epoch"], block["next_producer_id"]) == (1, 5, 2000)
    (quorum,) = of(rows(disk, "quorum_states"), "__cluster_metadata")
    assert quorum == {
        "leader_id": 1,
        "leader_epoch": 3,
        "voted_id": -1,
        "voted_directory_id": TOPIC_ID_TEXT,
        "data_version": 1,
    }


def test_states_of_transactional_ids_are_decoded(disk: Path) -> None:
    """A tombstone has only its key."""
    state, tombstone = of(
        rows(disk, "transaction_states"),
        "__transaction_state",
        without=(*PLACE, "position", "leader_epoch", "timestamp_ms"),
    )
    assert tombstone == {"record_offset": 1, "transactional_id": "gone", "is_tombstone": True}
    assert state == {
        "record_offset": 0,
        "transactional_id": "app",
        "is_tombstone": False,
        "producer_id": 1000,
        "previous_producer_id": -1,
        "next_producer_id": -1,
        "producer_epoch": 2,
        "next_producer_epoch": -1,
        "timeout_ms": 60_000,
        "status": "Ongoing",
        "partitions": '[["orders",0],["orders",1]]',
        "last_update_ms": TIME + 1,
        "start_ms": TIME,
        "client_transaction_version": 2,
    }
    partitions = rows(disk, "transaction_partitions")
    assert [(row["in_topic"], row["in_partition"]) for row in partitions] == [
        ("orders", 0),
        ("orders", 1),
    ]


def test_records_of_other_coordinators_are_decoded(disk: Path) -> None:
    """An offset commit in a transaction, a share-partition, a remote segment."""
    (commit,) = rows(disk, "group_offsets")
    assert (commit["group_id"], commit["of_topic"], commit["of_partition"]) == ("g", "orders", 1)
    assert (commit["committed_offset"], commit["committed_leader_epoch"]) == (42, 3)
    assert (commit["is_transactional"], commit["producer_id"]) == (True, 1000)
    (share,) = rows(disk, "share_states")
    assert (share["type"], share["group_id"], share["topic_id"]) == (
        "ShareSnapshot",
        "s",
        TOPIC_ID_TEXT,
    )
    assert share["batches"] == "[[1,4,2,1]]"
    (segment,) = rows(disk, "remote_segments")
    assert (segment["type"], segment["state"]) == (
        "RemoteLogSegmentMetadata",
        "COPY_SEGMENT_FINISHED",
    )
    assert segment["leader_epochs"] == "[[1,0]]"


def test_records_are_read_on_demand(disk: Path) -> None:
    """Compressed ones too; LogAppendTime replaces a record's own timestamp."""
    assert not rows(disk, "records")
    found = of(rows(disk, "records", with_records=True), "orders")
    found.sort(key=lambda row: int(row["record_offset"]))  # type: ignore[arg-type]  # an integer
    assert [row["record_offset"] for row in found] == [0, 1, 2, 3, 4, 5, 6]
    assert [row["sequence"] for row in found] == [0, 1, 2, -1, -1, -1, -1]
    assert [row.get("value") for row in found[:3]] == [b"v0", b"v1", b"v2"]
    assert (found[4]["value"], found[4]["timestamp_ms"]) == (b"x" * 500, TIME + 30)
    assert "value" not in found[5] and "key" not in found[5]
    assert found[6]["headers"] == '[["name","01"],["none",null]]'
    old = of(rows(disk, "records", with_records=True), "old")
    assert [row["record_offset"] for row in old] == [0, 1, 2, 3, 4]


def test_directory_may_hold_the_log_directories_of_several_nodes(
    disk: Path, tmp_path: Path
) -> None:
    """As `kraftsim up` lays them out; a log directory has the name of its own place."""
    for name in ("data/broker-1", "data/broker-2"):
        shutil.copytree(disk, tmp_path / name)
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "broker-1.jsonl").write_text("{}\n")
    found = {row["log_dir"] for row in rows(tmp_path, "log_dirs")}
    assert found == {str(tmp_path / "data" / name) for name in ("broker-1", "broker-2")}
    assert "events" not in {row.get("directory") for row in rows(tmp_path, "files")}


def test_directories_out_of_the_log_are_listed_and_not_read(disk: Path, tmp_path: Path) -> None:
    """Of those that Kafka renames only a future replica is a log."""
    shutil.copytree(disk, tmp_path / "node")
    moved = {}
    for state in ("future", "delete", "stray"):
        name = f"orders-1.{'ab' * 16}-{state}"
        shutil.copytree(disk / "orders-0", tmp_path / "node" / name)
        moved[name] = state
    (tmp_path / "node" / "orders-0" / f"{segment_file_name(9)}.deleted").write_bytes(b"?")
    (tmp_path / "node" / "orders-0" / f"{segment_file_name(9)}.swap").write_bytes(b"?")
    files = rows(tmp_path, "files")
    states = {str(row["directory"]): row["state"] for row in files if row.get("partition") == 1}
    assert states == moved
    named = {row["file"]: row["state"] for row in files}
    assert named[f"orders-0/{segment_file_name(9)}.deleted"] == "deleted"
    assert named[f"orders-0/{segment_file_name(9)}.swap"] == "swap"
    read = {row["directory"] for row in rows(tmp_path, "batches") if row["partition"] == 1}
    assert read == {f"orders-1.{'ab' * 16}-future"}
    futures = [row for row in rows(tmp_path, "replicas") if row["is_future"]]
    assert [row["directory"] for row in futures] == [f"orders-1.{'ab' * 16}-future"]
    assert "high_watermark" not in futures[0]
    assert not rows(tmp_path, "problems")


def test_large_segment_is_read_in_ranges_with_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges begin where the offset index names a batch."""
    batches = [
        build_batch([Record(timestamp=TIME, value=b"x" * 1000)], base_offset=offset)
        for offset in range(200)
    ]
    positions = positions_of(batches)
    directory = tmp_path / "large-0"
    directory.mkdir()
    (directory / LOG_0).write_bytes(b"".join(batches))
    entries = [OffsetEntry(offset, positions[offset]) for offset in range(4, 200, 4)]
    (directory / "00000000000000000000.index").write_bytes(build_offset_index(0, entries))
    whole = rows(directory, "batches")
    monkeypatch.setattr(segments, "RANGE_BYTES", 30_000)
    monkeypatch.setattr(segments, "WINDOW_BYTES", 5_000)
    in_ranges = rows(directory, "batches")
    assert in_ranges == whole and len(whole) == 200
    assert not rows(directory, "problems")
    # an entry that is no batch is passed over
    entries[20] = OffsetEntry(entries[20].offset, entries[20].position + 1)
    (directory / "00000000000000000000.index").write_bytes(build_offset_index(0, entries))
    assert rows(directory, "batches") == whole
    assert [row["problem"] for row in rows(directory, "problems")] == ["index"]


def test_directory_that_is_named_twice_is_read_once(disk: Path) -> None:
    """Else each of its batches would be there twice."""
    tables = [piece.table for piece in scan.pieces_of([disk, disk.parent, str(disk)])]
    assert tables.count("log_dirs") == 1


def test_files_of_remote_storage_are_named_by_their_paths(tmp_path: Path) -> None:
    """The layout of Apache Kafka's LocalTieredStorage, which kraftsim's stores have too."""
    segment = "-" + "s" * 21  # an id may begin with a hyphen
    directory = tmp_path / "tier" / f"my-orders-12-{TOPIC_ID_TEXT}"
    directory.mkdir(parents=True)
    for suffix in ("log", "index", "timeindex", "txnindex", "snapshot", "leader_epoch_checkpoint"):
        (directory / f"{42:020d}-{segment}.{suffix}").write_bytes(b"12345")
    (tmp_path / "tier" / "notes").write_bytes(b"")
    found = [row for piece in remote_pieces(tmp_path / "tier") for row in piece.rows]
    assert {row[7] for row in found} == {
        "log",
        "index",
        "timeindex",
        "txnindex",
        "snapshot",
        "leader-epochs",
        None,
    }
    assert {row[2:7] for row in found if row[7] is not None} == {
        ("my-orders", 12, TOPIC_ID_TEXT, segment, 42)
    }
    missing = [piece.table for piece in remote_pieces(tmp_path / "missing")]
    assert missing == ["problems"]


def test_staged_tables_have_the_rows_and_types_of_the_declaration(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parquet files by worker processes, read by DuckDB."""
    monkeypatch.setattr(scan, "POOL_WEIGHT_MIN", 0)
    monkeypatch.setattr(scan, "SHARE_WEIGHT_MIN", 1 << 20)
    reported: list[tuple[int, int]] = []
    staged = stage(
        [disk], tmp_path, with_records=True, workers=2, report=lambda *done: reported.append(done)
    )
    counts = row_counts(disk)
    assert staged.rows == counts
    assert reported[-1] == (staged.size, staged.size)
    with duckdb_tables(tmp_path) as connection:
        for table, count in counts.items():
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchall() == [(count,)]
            described = connection.execute(f"DESCRIBE {table}").fetchall()
            assert [row[0] for row in described] == [each.name for each in TABLES[table].columns]
