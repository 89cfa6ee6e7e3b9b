"""Reads the small files of a log directory and of its partitions into rows.

Source: ProducerStateManager, LeaderEpochCheckpointFile, OffsetCheckpointFile, MetaProperties,
PartitionMetadataFile, FileQuorumStateStore.
"""

import json
from collections.abc import Iterator

from kraftsim.audit.reading.pieces import Origin, TablePiece
from protocol.malformed import MalformedMessage
from protocol.storage.producer_snapshot import parse_producer_rows
from protocol.storage.quorum_state import (
    DATA_VERSION,
    DYNAMIC_VOTERS_VERSION,
    parse_quorum_state,
)
from protocol.storage.text_files import (
    MetaProperties,
    parse_leader_epoch_checkpoint,
    parse_meta_properties,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from protocol.uuids import uuid_text

COLUMNS_OF_PRODUCER = 8


def producer_snapshot_pieces(origin: Origin, offset: int, content: bytes) -> Iterator[TablePiece]:
    """Yield the producers of a snapshot, or a row of nulls if it has none."""
    try:
        rows = list(parse_producer_rows(content))
    except MalformedMessage as malformed:
        yield _malformed(origin, malformed)
        return
    start = (*origin.prefix, offset)
    yield TablePiece(
        "producer_snapshots",
        [(*start, *row) for row in rows] or [(*start, *(None,) * COLUMNS_OF_PRODUCER)],
    )


def leader_epoch_pieces(origin: Origin, content: bytes) -> Iterator[TablePiece]:
    """Yield the entries of a leader-epoch-checkpoint."""
    try:
        starts = parse_leader_epoch_checkpoint(content)
    except MalformedMessage as malformed:
        yield _malformed(origin, malformed)
        return
    yield TablePiece("leader_epochs", [(*origin.prefix, *start) for start in starts])


def quorum_state_pieces(origin: Origin, content: bytes) -> Iterator[TablePiece]:
    """Yield the row of a quorum-state."""
    try:
        state = parse_quorum_state(content)
    except MalformedMessage as malformed:
        yield _malformed(origin, malformed)
        return
    version = json.loads(content)[DATA_VERSION]
    directory_id = (
        uuid_text(state.voted_directory_id) if version >= DYNAMIC_VOTERS_VERSION else None
    )
    yield TablePiece(
        "quorum_states",
        [
            (
                *origin.prefix,
                state.leader_id,
                state.leader_epoch,
                state.voted_id,
                directory_id,
                int(version),
            )
        ],
    )


def offsets_of(
    origin: Origin, content: bytes
) -> tuple[dict[tuple[str, int], int], list[TablePiece]]:
    """Return the entries of a checkpoint of a log directory, and its rows."""
    try:
        offsets = parse_offset_checkpoint(content, origin.file)
    except MalformedMessage as malformed:
        return {}, [_malformed(origin, malformed)]
    start = (origin.log_dir, origin.node_id, origin.file)
    rows = [(*start, topic, partition, offset) for (topic, partition), offset in offsets.items()]
    return offsets, [TablePiece("offset_checkpoints", list(rows))]


def topic_id_of(origin: Origin, content: bytes) -> tuple[str | None, list[TablePiece]]:
    """Return the topic id in a partition.metadata, or the problem."""
    try:
        return uuid_text(parse_partition_metadata(content)), []
    except MalformedMessage as malformed:
        return None, [_malformed(origin, malformed)]


def meta_properties_of(
    origin: Origin, content: bytes
) -> tuple[MetaProperties | None, list[TablePiece]]:
    """Return the content of a meta.properties, or the problem."""
    try:
        return parse_meta_properties(content), []
    except MalformedMessage as malformed:
        return None, [_malformed(origin, malformed)]


def _malformed(origin: Origin, malformed: MalformedMessage) -> TablePiece:
    kind = "crc" if "checksum" in malformed.reason else "malformed"
    return origin.problem(kind, malformed.reason, position=0, size=origin.size)
