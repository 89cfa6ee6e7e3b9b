"""Reads the records that Kafka itself writes: the metadata log with its snapshots, and the topics
of the coordinators and of the remote log metadata.

A record of a kind or version that is not known here gets a row without content: a newer release
wrote it. One that is known and cannot be decoded is a row of `problems`.
Source: MetadataRecordSerde (KIP-631), TransactionLog, GroupCoordinatorRecordSerde,
ShareCoordinatorRecordSerde (KIP-932), RemoteLogMetadataSerde (KIP-405).
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from kraftsim.audit.reading.pieces import Origin, Row, TablePiece, Value
from kraftsim.inspect.dump.payloads import TRANSACTION_STATES
from kraftsim.inspect.dump.rows import json_text
from protocol.codec.declaration import snake_case
from protocol.coordinator.consumer_groups import LegacyOffsetCommitKey, OffsetCommitKey
from protocol.coordinator.registry import (
    CoordinatorTopic,
    parse_record,
    record_classes,
    value_version,
)
from protocol.coordinator.share_states import ShareSnapshotKey
from protocol.malformed import MalformedMessage
from protocol.message_json import message_to_json
from protocol.metadata import registry as metadata
from protocol.metadata.controller import ProducerIdsRecord
from protocol.metadata.topics import (
    NO_LEADER_CHANGE,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.records.message_sets import AnyBatch, OldMessage
from protocol.records.record import Record
from protocol.remote_log import records as remote_log
from protocol.remote_log.records import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
)
from protocol.schema import Message, declaration_of
from protocol.storage.file_names import METADATA_TOPIC
from protocol.uuids import uuid_text
from protocol.version_prefixed import prefixed_version

REMOTE_LOG_TOPIC: Final = "__remote_log_metadata"


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """Where a record is: the file, and the batch at a position of it; `snapshot` is end offset and
    epoch of the snapshot of metadata that the file is.
    """

    origin: Origin
    position: int
    batch: AnyBatch
    snapshot: tuple[int, int] | None = None

    def prefix(self, record: Record) -> Row:
        """Return the columns from log_dir to leader_epoch."""
        batch = self.batch
        epoch = None if isinstance(batch, OldMessage) else batch.partition_leader_epoch
        return (*self.origin.prefix, self.position, record.offset, epoch)

    @property
    def snapshot_end(self) -> int | None:
        """The end offset of the snapshot."""
        return None if self.snapshot is None else self.snapshot[0]


Decode = Callable[[RecordPlace, Record], Iterator[TablePiece]]
"""Yields the rows of a record. Raises MalformedMessage."""


def internal_rows(decode: Decode, place: RecordPlace) -> Iterator[TablePiece]:
    """Yield the rows of all records of a batch, and of `problems` for what cannot be decoded."""
    batch = place.batch
    if not isinstance(batch, OldMessage) and batch.is_control:
        return
    try:
        for record in batch.records():
            try:
                yield from decode(place, record)
            except MalformedMessage as malformed:
                yield _problem(place, f"record {record.offset}: {malformed}")
    except MalformedMessage as malformed:
        yield _problem(place, malformed.reason)


def _problem(place: RecordPlace, reason: str) -> TablePiece:
    return place.origin.problem(
        "malformed", reason, position=place.position, size=place.batch.size_bytes
    )


def _unsupported(place: RecordPlace, record: Record) -> TablePiece:
    reason = f"record {record.offset} is of a type or version that is not known here"
    return place.origin.problem(
        "unsupported", reason, position=place.position, size=place.batch.size_bytes
    )


# --------------------------------------------------------------------------------------------------
# __cluster_metadata


def metadata_rows(place: RecordPlace, record: Record) -> Iterator[TablePiece]:
    """Yield the row of a record of the metadata log, and those of its type."""
    value, prefix = record.value or b"", place.prefix(record)
    ends = (None, None) if place.snapshot is None else place.snapshot
    if not _is_known(value, metadata.record_class):
        version = value[2] if len(value) > 2 else None
        row: Row = (*prefix, record.timestamp, *ends, None, version, None)
        yield TablePiece("metadata_records", [row])
        return
    message = metadata.parse_record(value)
    version = metadata.record_version(value)
    name = snake_case(declaration_of(type(message)).name).upper()
    data = json_text(message_to_json(message, version))
    yield TablePiece("metadata_records", [(*prefix, record.timestamp, *ends, name, version, data)])
    end = place.snapshot_end
    match message:
        case TopicRecord():
            topic = (uuid_text(message.topic_id), message.name, False)
            yield TablePiece("metadata_topics", [(*prefix, end, *topic)])
        case RemoveTopicRecord():
            yield TablePiece(
                "metadata_topics", [(*prefix, end, uuid_text(message.topic_id), None, True)]
            )
        case PartitionRecord() | PartitionChangeRecord():
            yield TablePiece("metadata_partitions", [(*prefix, end, *_partition(message))])
        case ProducerIdsRecord():
            block = (message.broker_id, message.broker_epoch, message.next_producer_id)
            yield TablePiece("producer_id_blocks", [(*prefix, end, *block)])


def _partition(message: PartitionRecord | PartitionChangeRecord) -> Row:
    is_change = isinstance(message, PartitionChangeRecord)
    leader: int | None = message.leader
    return (
        uuid_text(message.topic_id),
        message.partition_id,
        is_change,
        None if is_change and leader == NO_LEADER_CHANGE else leader,
        None if isinstance(message, PartitionChangeRecord) else message.leader_epoch,
        None if isinstance(message, PartitionChangeRecord) else message.partition_epoch,
        _json(message.replicas),
        _json(message.isr),
    )


def _is_known(value: bytes, record_class: Callable[[int], type]) -> bool:
    """Return whether the frame of a record names a type and version that are declared; what is no
    frame counts as known, so that decoding it fails.
    """
    if len(value) < 3 or (value[0] | value[1] | value[2]) > 127:
        return True
    try:
        return value[2] in declaration_of(record_class(value[1])).versions
    except KeyError:
        return False


# --------------------------------------------------------------------------------------------------
# __transaction_state


def transaction_rows(place: RecordPlace, record: Record) -> Iterator[TablePiece]:
    """Yield the rows of a transactional id's state."""
    found = _coordinated(CoordinatorTopic.TRANSACTION_STATE, record)
    if found is None:
        yield _unsupported(place, record)
        return
    key, state = found
    prefix = place.prefix(record)
    start: Row = (*prefix, record.timestamp, key.transactional_id, state is None)
    if state is None:
        yield TablePiece("transaction_states", [(*start, *(None,) * 11)])
        return
    status = name_of_status(state.transaction_status)
    partitions = [
        (each.topic, partition)
        for each in state.transaction_partitions or ()
        for partition in each.partition_ids
    ]
    yield TablePiece(
        "transaction_states",
        [
            (
                *start,
                state.producer_id,
                state.previous_producer_id,
                state.next_producer_id,
                state.producer_epoch,
                state.next_producer_epoch,
                state.transaction_timeout_ms,
                status,
                None if state.transaction_partitions is None else _json(partitions),
                state.transaction_last_update_timestamp_ms,
                state.transaction_start_timestamp_ms,
                state.client_transaction_version,
            )
        ],
    )
    of_id = (key.transactional_id, state.producer_id, state.producer_epoch, status)
    if partitions:
        yield TablePiece(
            "transaction_partitions", [(*prefix, *of_id, *partition) for partition in partitions]
        )


def name_of_status(status: int) -> str:
    """Return the name of a TransactionState."""
    if 0 <= status < len(TRANSACTION_STATES):
        return TRANSACTION_STATES[status]
    return f"unknown {status}"


def _coordinated(topic: CoordinatorTopic, record: Record) -> tuple[Message, Message | None] | None:
    """Return key and value; None for a type or version that is not known here."""
    if record.key is None:
        raise MalformedMessage(None, None, "key", "it is null")
    try:
        classes = record_classes(topic, prefixed_version(record.key))
    except KeyError:
        return None
    if record.value is not None:
        versions = declaration_of(classes.value).versions
        if prefixed_version(record.value) > versions.last:
            return None
    return parse_record(topic, record.key, record.value)


# --------------------------------------------------------------------------------------------------
# __consumer_offsets


def group_rows(place: RecordPlace, record: Record) -> Iterator[TablePiece]:
    """Yield the row of an offset commit, or of another record of a group."""
    found = _coordinated(CoordinatorTopic.CONSUMER_OFFSETS, record)
    prefix = place.prefix(record)
    if found is None:
        yield TablePiece("group_records", [(*prefix, record.timestamp, None, None, None, None)])
        return
    key, value = found
    if isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
        yield TablePiece("group_offsets", [(*prefix, *_offset_commit(place, record, key, value))])
        return
    fields = message_to_json(key, 0)
    group = fields.get("groupId", fields.get("group"))
    shown = None
    if value is not None and record.value is not None:
        shown = json_text(message_to_json(value, value_version(record.value)))
    name = declaration_of(type(key)).name.removesuffix("Key")
    group_id = group if isinstance(group, str) else None
    yield TablePiece(
        "group_records", [(*prefix, record.timestamp, name, group_id, json_text(fields), shown)]
    )


def _offset_commit(place: RecordPlace, record: Record, key: Message, value: Message | None) -> Row:
    batch = place.batch
    producer: Row = (False, -1, -1)
    if not isinstance(batch, OldMessage):
        producer = (batch.is_transactional, batch.producer_id, batch.producer_epoch)
    start: Row = (record.timestamp, key.group, key.topic, key.partition, value is None)
    if value is None:
        return (*start, *(None,) * 5, *producer)
    return (
        *start,
        value.offset,
        getattr(value, "leader_epoch", -1),
        value.metadata,
        value.commit_timestamp,
        getattr(value, "expire_timestamp", -1),
        *producer,
    )


# --------------------------------------------------------------------------------------------------
# __share_group_state


def share_rows(place: RecordPlace, record: Record) -> Iterator[TablePiece]:
    """Yield the row of a snapshot or an update of a share-partition."""
    found = _coordinated(CoordinatorTopic.SHARE_GROUP_STATE, record)
    if found is None:
        yield _unsupported(place, record)
        return
    key, value = found
    kind = "ShareSnapshot" if isinstance(key, ShareSnapshotKey) else "ShareUpdate"
    start: Row = (
        *place.prefix(record),
        record.timestamp,
        kind,
        key.group_id,
        uuid_text(key.topic_id),
        key.partition,
        value is None,
    )
    if value is None:
        yield TablePiece("share_states", [(*start, *(None,) * 5)])
        return
    batches = [
        (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in value.state_batches
    ]
    state_epoch = getattr(value, "state_epoch", None)
    state = (value.snapshot_epoch, state_epoch, value.leader_epoch, value.start_offset)
    yield TablePiece("share_states", [(*start, *state, _json(batches))])


# --------------------------------------------------------------------------------------------------
# __remote_log_metadata


def remote_log_rows(place: RecordPlace, record: Record) -> Iterator[TablePiece]:
    """Yield the row of an event of a remote segment or partition."""
    value = record.value or b""
    start: Row = (*place.prefix(record), record.timestamp)
    if not _is_known(value, remote_log.record_class):
        yield _unsupported(place, record)
        return
    message = remote_log.parse_record(value)
    kind = declaration_of(type(message)).name.removesuffix("Record")
    match message:
        case RemoteLogSegmentMetadataRecord():
            epochs = [(each.leader_epoch, each.offset) for each in message.segment_leader_epochs]
            owner, segment_id = _segment(message)
            rest: Row = (
                message.start_offset,
                message.end_offset,
                message.broker_id,
                message.max_timestamp_ms,
                message.event_timestamp_ms,
                message.segment_size_in_bytes,
                _name(remote_log.RemoteLogSegmentState, message.remote_log_segment_state),
                _json(epochs),
            )
        case RemoteLogSegmentMetadataUpdateRecord():
            owner, segment_id = _segment(message)
            state = _name(remote_log.RemoteLogSegmentState, message.remote_log_segment_state)
            rest = (None, None, *_event(message), None, state, None)
        case RemotePartitionDeleteMetadataRecord():
            owner, segment_id = _owner(message.topic_id_partition), None
            state = _name(
                remote_log.RemotePartitionDeleteState, message.remote_partition_delete_state
            )
            rest = (None, None, *_event(message), None, state, None)
        case _:
            yield _unsupported(place, record)
            return
    yield TablePiece("remote_segments", [(*start, kind, *owner, segment_id, *rest)])


def _event(message: Message) -> tuple[int, None, int]:
    return message.broker_id, None, message.event_timestamp_ms


def _segment(message: Message) -> tuple[Row, str | None]:
    segment = message.remote_log_segment_id
    return _owner(segment.topic_id_partition), uuid_text(segment.id)


def _owner(partition: Message) -> Row:
    return uuid_text(partition.id), partition.name, partition.partition


def _name(states: type[IntEnum], number: int) -> str:
    try:
        return states(number).name
    except ValueError:
        return f"unknown {number}"


def _json(value: object) -> Value:
    return None if value is None else json.dumps(value, separators=(",", ":"))


DECODERS: Final[Mapping[str, Decode]] = {
    METADATA_TOPIC: metadata_rows,
    CoordinatorTopic.TRANSACTION_STATE.value: transaction_rows,
    CoordinatorTopic.CONSUMER_OFFSETS.value: group_rows,
    CoordinatorTopic.SHARE_GROUP_STATE.value: share_rows,
    REMOTE_LOG_TOPIC: remote_log_rows,
}
"""By topic."""
TABLES_OF: Final[Mapping[str, tuple[str, ...]]] = {
    METADATA_TOPIC: (
        "metadata_records",
        "metadata_topics",
        "metadata_partitions",
        "producer_id_blocks",
    ),
    CoordinatorTopic.TRANSACTION_STATE.value: ("transaction_states", "transaction_partitions"),
    CoordinatorTopic.CONSUMER_OFFSETS.value: ("group_offsets", "group_records"),
    CoordinatorTopic.SHARE_GROUP_STATE.value: ("share_states",),
    REMOTE_LOG_TOPIC: ("remote_segments",),
}
"""The tables that a topic's records give rows for."""
