"""A small log directory with a file of each kind, written by kraftsim's own writers."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kraftsim.audit.reading.pieces import Value, arrow_of
from kraftsim.audit.scan import pieces_of
from protocol.coordinator.consumer_groups import OffsetCommitKey, OffsetCommitValue
from protocol.coordinator.registry import build_record
from protocol.coordinator.share_states import ShareSnapshotKey, ShareSnapshotValue, StateBatch
from protocol.coordinator.transactions import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from protocol.metadata import registry as metadata
from protocol.metadata.controller import ProducerIdsRecord
from protocol.metadata.topics import PartitionChangeRecord, PartitionRecord, TopicRecord
from protocol.records.batches import build_batch
from protocol.records.control_records import build_leader_change, build_transaction_marker
from protocol.records.message_sets import build_message_set
from protocol.records.record import Compression, Record
from protocol.remote_log import records as remote_log
from protocol.remote_log.records import (
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataRecord,
    SegmentLeaderEpochEntry,
    TopicIdPartitionEntry,
)
from protocol.schema import Message
from protocol.storage import file_names
from protocol.storage.file_names import metadata_snapshot_name, segment_file_name
from protocol.storage.indexes import (
    AbortedTransaction,
    OffsetEntry,
    TimeEntry,
    build_offset_index,
    build_time_index,
    build_transaction_index,
)
from protocol.storage.metadata_snapshot import build_metadata_snapshot
from protocol.storage.producer_snapshot import ProducerRow, build_producer_rows
from protocol.storage.quorum_state import QuorumState, build_quorum_state
from protocol.storage.text_files import (
    EpochStart,
    MetaProperties,
    build_leader_epoch_checkpoint,
    build_meta_properties,
    build_offset_checkpoint,
    build_partition_metadata,
)

TOPIC_ID: Final = bytes(range(16))
TOPIC_ID_TEXT: Final = "AAECAwQFBgcICQoLDA0ODw"
SEGMENT_ID: Final = bytes(range(16, 32))
TIME: Final = 1_700_000_000_000
METADATA: Final = (
    TopicRecord(name="orders", topic_id=TOPIC_ID),
    PartitionRecord(
        partition_id=0,
        topic_id=TOPIC_ID,
        replicas=[1, 2],
        isr=[1, 2],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
    ),
    PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[1]),
    ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=2000),
)


def orders_batches() -> list[bytes]:
    """Return the batches of orders-0: a transaction that is aborted, a compressed batch, one with
    headers, one of which compaction left the delete horizon.
    """
    return [
        build_batch(
            [Record(timestamp=TIME + n, key=b"k%d" % n, value=b"v%d" % n) for n in range(3)],
            base_offset=0,
            leader_epoch=1,
            producer_id=1000,
            producer_epoch=2,
            base_sequence=0,
            transactional=True,
        ),
        build_transaction_marker(
            commits=False,
            producer_id=1000,
            producer_epoch=2,
            coordinator_epoch=7,
            timestamp=TIME + 10,
            base_offset=3,
            leader_epoch=1,
        ),
        build_batch(
            [Record(timestamp=TIME + 20, value=b"x" * 500), Record(timestamp=TIME + 21)],
            base_offset=4,
            leader_epoch=2,
            compression=Compression.ZSTD,
            append_timestamp=TIME + 30,
        ),
        build_batch(
            [Record(timestamp=TIME + 40, key=b"h", headers=(("name", b"\x01"), ("none", None)))],
            base_offset=6,
            leader_epoch=2,
            delete_horizon_ms=TIME + 99,
        ),
    ]


def positions_of(batches: Iterable[bytes]) -> list[int]:
    """Return where each batch begins in a segment."""
    positions, position = [], 0
    for batch in batches:
        positions.append(position)
        position += len(batch)
    return positions


def write_log_dir(root: Path) -> Path:
    """Write the log directory of node 1, and return it."""
    root.mkdir(parents=True)
    meta = MetaProperties(node_id=1, cluster_id="c1", directory_id=TOPIC_ID)
    (root / file_names.META_PROPERTIES).write_bytes(build_meta_properties(meta))
    (root / file_names.CLEAN_SHUTDOWN).write_bytes(b"")
    for name, offset in (
        (file_names.REPLICATION_OFFSETS, 7),
        (file_names.RECOVERY_POINTS, 6),
        (file_names.LOG_START_OFFSETS, 1),
        (file_names.CLEANER_OFFSETS, 2),
    ):
        (root / name).write_bytes(build_offset_checkpoint({("orders", 0): offset}))
    _write_orders(root / "orders-0")
    _write_metadata_log(root / "__cluster_metadata-0")
    _write_topic(root / "__transaction_state-3", [_state(), _state_tombstone()])
    _write_topic(root / "__consumer_offsets-4", [_offset_commit()], transactional=True)
    _write_topic(root / "__share_group_state-5", [_share_snapshot()])
    _write_topic(root / "__remote_log_metadata-6", [_remote_segment()])
    _write(root / "old-0", LOG_0, old_messages())
    return root


LOG_0: Final = segment_file_name(0)


def old_messages() -> bytes:
    """Return a message of format 0, one of format 1, and a wrapper of three."""
    three = [Record(timestamp=TIME + n, value=b"w") for n in range(3)]
    return (
        build_message_set([Record(key=b"a", value=b"b")], magic=0)
        + build_message_set([Record(timestamp=TIME, value=b"c")], magic=1, base_offset=1)
        + build_message_set(three, magic=1, base_offset=2, compression=Compression.GZIP)
    )


def _write(directory: Path, name: str, content: bytes) -> None:
    directory.mkdir(exist_ok=True)
    (directory / name).write_bytes(content)


def _write_orders(directory: Path) -> None:
    batches = orders_batches()
    positions = positions_of(batches)
    _write(directory, LOG_0, b"".join(batches))
    _write(
        directory,
        segment_file_name(0, file_names.OFFSET_INDEX),
        build_offset_index(0, [OffsetEntry(3, positions[1]), OffsetEntry(5, positions[2])]),
    )
    _write(
        directory,
        segment_file_name(0, file_names.TIME_INDEX),
        build_time_index(0, [TimeEntry(TIME + 10, 3), TimeEntry(TIME + 30, 5)]),
    )
    aborted = AbortedTransaction(
        producer_id=1000, first_offset=0, last_offset=3, last_stable_offset=4
    )
    _write(
        directory,
        segment_file_name(0, file_names.TRANSACTION_INDEX),
        build_transaction_index([aborted]),
    )
    _write(
        directory,
        segment_file_name(7, file_names.PRODUCER_SNAPSHOT),
        build_producer_rows([ProducerRow(1000, 2, 2, 2, 2, TIME + 10, 7, -1)]),
    )
    _write(directory, segment_file_name(0, file_names.PRODUCER_SNAPSHOT), build_producer_rows([]))
    _write(
        directory,
        file_names.LEADER_EPOCHS,
        build_leader_epoch_checkpoint([EpochStart(1, 0), EpochStart(2, 4)]),
    )
    _write(directory, file_names.PARTITION_METADATA, build_partition_metadata(TOPIC_ID))


def _write_metadata_log(directory: Path) -> None:
    change = build_leader_change(
        leader_id=1,
        voters=[1],
        granting_voters=[1],
        base_offset=0,
        leader_epoch=1,
        timestamp=TIME,
    )
    values = [metadata.build_record(record, 0) for record in METADATA]
    records = [Record(timestamp=TIME + 1, value=value) for value in values]
    _write(directory, LOG_0, change + build_batch(records, base_offset=1, leader_epoch=1))
    _write(
        directory,
        metadata_snapshot_name(5, 1),
        build_metadata_snapshot(values, timestamp=TIME, leader_epoch=1),
    )
    state = QuorumState(leader_id=1, leader_epoch=3, voted_directory_id=TOPIC_ID)
    _write(directory, file_names.QUORUM_STATE, build_quorum_state(state, 1))


def _write_topic(
    directory: Path,
    records: list[tuple[bytes | None, bytes | None]],
    *,
    transactional: bool = False,
) -> None:
    batch = build_batch(
        [Record(timestamp=TIME, key=key, value=value) for key, value in records],
        leader_epoch=0,
        producer_id=1000 if transactional else -1,
        producer_epoch=2 if transactional else -1,
        base_sequence=0 if transactional else -1,
        transactional=transactional,
    )
    _write(directory, LOG_0, batch)


def _state() -> tuple[bytes, bytes | None]:
    value: Message = TransactionLogValue(
        producer_id=1000,
        producer_epoch=2,
        transaction_timeout_ms=60_000,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="orders", partition_ids=[0, 1])],
        transaction_last_update_timestamp_ms=TIME + 1,
        transaction_start_timestamp_ms=TIME,
        client_transaction_version=2,
    )
    return build_record(TransactionLogKey(transactional_id="app"), value, 1)


def _state_tombstone() -> tuple[bytes, bytes | None]:
    return build_record(TransactionLogKey(transactional_id="gone"), None)


def _offset_commit() -> tuple[bytes, bytes | None]:
    key = OffsetCommitKey(group="g", topic="orders", partition=1)
    value = OffsetCommitValue(offset=42, leader_epoch=3, metadata="m", commit_timestamp=TIME)
    return build_record(key, value, 3)


def _share_snapshot() -> tuple[bytes, bytes | None]:
    key = ShareSnapshotKey(group_id="s", topic_id=TOPIC_ID, partition=2)
    batch = StateBatch(first_offset=1, last_offset=4, delivery_state=2, delivery_count=1)
    value = ShareSnapshotValue(
        snapshot_epoch=6,
        state_epoch=5,
        leader_epoch=4,
        start_offset=1,
        create_timestamp=TIME,
        write_timestamp=TIME,
        state_batches=[batch],
    )
    return build_record(key, value, 0)


def _remote_segment() -> tuple[bytes | None, bytes | None]:
    owner = TopicIdPartitionEntry(name="orders", id=TOPIC_ID, partition=0)
    record = RemoteLogSegmentMetadataRecord(
        remote_log_segment_id=RemoteLogSegmentIdEntry(topic_id_partition=owner, id=SEGMENT_ID),
        start_offset=0,
        end_offset=3,
        broker_id=1,
        max_timestamp_ms=TIME,
        event_timestamp_ms=TIME + 1,
        segment_leader_epochs=[SegmentLeaderEpochEntry(leader_epoch=1, offset=0)],
        segment_size_in_bytes=300,
        remote_log_segment_state=1,
    )
    return None, remote_log.build_record(record, 0)


def rows(
    place: Path | str, table: str, *, with_records: bool = False, with_crc: bool = True
) -> list[dict[str, Value]]:
    """Return the rows of a table, without the columns that are null."""
    found: list[dict[str, Value]] = []
    for piece in pieces_of([place], with_records=with_records, with_crc=with_crc):
        if piece.table == table:
            found += arrow_of(piece).to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in found]


def row_counts(place: Path | str) -> dict[str, int]:
    """Return the number of rows of each table, with records."""
    counts: dict[str, int] = {}
    for piece in pieces_of([place], with_records=True):
        counts[piece.table] = counts.get(piece.table, 0) + arrow_of(piece).num_rows
    return counts
