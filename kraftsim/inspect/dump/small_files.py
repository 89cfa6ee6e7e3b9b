"""The small files of a log directory, one line per entry; of these DumpLogSegments reads only
producer snapshots.

Source: kafka.tools.DumpLogSegments (dumpProducerIdSnapshot), ProducerStateManager, CheckpointFile,
PartitionMetadataFile, MetaProperties.
"""

from collections.abc import Callable, Iterator
from typing import Final

from kraftsim.inspect.dump.rows import DumpRow, words_of, wrong
from kraftsim.inspect.dump.segments import optional_long
from kraftsim.inspect.json_lines import Json
from protocol.malformed import MalformedMessage
from protocol.records.batches import SEQUENCES
from protocol.storage import file_names
from protocol.storage.producer_snapshot import (
    NO_TRANSACTION,
    ProducerSnapshotEntry,
    parse_producer_snapshot,
)
from protocol.storage.quorum_state import parse_quorum_state
from protocol.storage.text_files import (
    ZOOKEEPER_VERSION,
    parse_clean_shutdown,
    parse_leader_epoch_checkpoint,
    parse_meta_properties,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from protocol.uuids import uuid_text

Reader = Callable[[bytes], Iterator[DumpRow]]


def producer_snapshot_rows(content: bytes) -> Iterator[DumpRow]:
    """Yield the producers; one that has written nothing yet has no batch."""
    for entry in parse_producer_snapshot(content):
        fields = _producer_fields(entry)
        first = entry.current_transaction_first_offset
        shown = {
            **fields,
            "currentTxnFirstOffset": optional_long(None if first == NO_TRANSACTION else first),
        }
        yield DumpRow("producer", words_of(shown) + ("" if entry.last_offset >= 0 else " "), fields)


def _producer_fields(entry: ProducerSnapshotEntry) -> dict[str, Json]:
    first = entry.current_transaction_first_offset
    fields: dict[str, Json] = {
        "producerId": entry.producer_id,
        "producerEpoch": entry.producer_epoch,
        "coordinatorEpoch": entry.coordinator_epoch,
        "currentTxnFirstOffset": None if first == NO_TRANSACTION else first,
        "lastTimestamp": entry.timestamp,
    }
    if entry.last_offset >= 0:
        fields |= {
            "firstSequence": (entry.last_sequence - entry.offset_delta) % SEQUENCES,
            "lastSequence": entry.last_sequence,
            "lastOffset": entry.last_offset,
            "offsetDelta": entry.offset_delta,
            "timestamp": entry.timestamp,
        }
    return fields


def _leader_epochs(content: bytes) -> Iterator[DumpRow]:
    for start in parse_leader_epoch_checkpoint(content):
        yield _row(
            "leaderEpoch", {"leaderEpoch": start.leader_epoch, "startOffset": start.start_offset}
        )


def _offsets(content: bytes) -> Iterator[DumpRow]:
    for (topic, partition), offset in parse_offset_checkpoint(content).items():
        yield _row("offset", {"topic": topic, "partition": partition, "offset": offset})


def _partition_metadata(content: bytes) -> Iterator[DumpRow]:
    yield _row(
        "partitionMetadata", {"version": 0, "topicId": uuid_text(parse_partition_metadata(content))}
    )


def _meta_properties(content: bytes) -> Iterator[DumpRow]:
    meta = parse_meta_properties(content)
    fields: dict[str, Json] = {"version": meta.version, "clusterId": meta.cluster_id}
    fields["brokerId" if meta.version == ZOOKEEPER_VERSION else "nodeId"] = meta.node_id
    fields["directoryId"] = None if meta.directory_id is None else uuid_text(meta.directory_id)
    yield _row("metaProperties", fields)


def _quorum_state(content: bytes) -> Iterator[DumpRow]:
    state = parse_quorum_state(content)
    yield _row(
        "quorumState",
        {
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
            "votedDirectoryId": uuid_text(state.voted_directory_id),
            "currentVoters": [voter.voter_id for voter in state.current_voters or ()],
        },
    )


def _clean_shutdown(content: bytes) -> Iterator[DumpRow]:
    yield _row("cleanShutdown", {"brokerEpoch": parse_clean_shutdown(content)})


READERS: Final[dict[str, Reader]] = {
    file_names.LEADER_EPOCHS: _leader_epochs,
    file_names.REPLICATION_OFFSETS: _offsets,
    file_names.RECOVERY_POINTS: _offsets,
    file_names.LOG_START_OFFSETS: _offsets,
    "cleaner-offset-checkpoint": _offsets,
    file_names.PARTITION_METADATA: _partition_metadata,
    file_names.META_PROPERTIES: _meta_properties,
    file_names.QUORUM_STATE: _quorum_state,
    file_names.CLEAN_SHUTDOWN: _clean_shutdown,
}
"""By the name of the file."""


def small_file_rows(reader: Reader, content: bytes) -> Iterator[DumpRow]:
    """Yield the entries of a file, or an error if it is malformed."""
    try:
        yield from reader(content)
    except MalformedMessage as malformed:
        yield wrong(str(malformed))


def _row(kind: str, fields: dict[str, Json]) -> DumpRow:
    return DumpRow(kind, words_of(fields), fields)
