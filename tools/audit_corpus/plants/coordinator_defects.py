"""Defects in the coordinators' topics, in the metadata log and its snapshots, in remote storage."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from kraftsim.groups.rules_timing import partition_of
from kraftsim.transactions.rules_state import TransactionState
from protocol.coordinator.consumer_groups import OffsetCommitKey, OffsetCommitValue
from protocol.coordinator.registry import CoordinatorTopic, build_record, value_version
from protocol.coordinator.share_states import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from protocol.coordinator.transactions import TransactionLogKey, TransactionLogValue
from protocol.metadata.controller import ProducerIdsRecord
from protocol.metadata.registry import build_record as build_metadata
from protocol.metadata.registry import parse_record as parse_metadata
from protocol.metadata.registry import record_version
from protocol.metadata.topics import PartitionRecord, TopicRecord
from protocol.records.batches import RecordBatch, build_batch, split_batches
from protocol.records.record import Record
from protocol.schema import Message
from protocol.storage.file_names import LEADER_EPOCHS, QUORUM_STATE
from tools.audit_corpus.plants.disks import (
    METADATA,
    OFFSETS,
    SHARE,
    TRANSACTIONS,
    Batch,
    Disks,
    Place,
    Planted,
    Replica,
    Unplantable,
    append,
    batches,
    coordinator_records,
    end_offset,
    newest_ms,
    replace_everywhere,
    with_records,
)
from tools.audit_corpus.plants.plant import plant_of

STATES = CoordinatorTopic.TRANSACTION_STATE
ONGOING = TransactionState.ONGOING
PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
BEYOND = 1000
Found = tuple[Batch, Record, TransactionLogKey, TransactionLogValue]


def _transaction_states(replica: Replica) -> Iterator[Found]:
    for batch, record, key, value in coordinator_records(replica, STATES):
        if isinstance(key, TransactionLogKey) and isinstance(value, TransactionLogValue):
            yield batch, record, key, value


def _by_id(replica: Replica) -> dict[str, list[Found]]:
    found: dict[str, list[Found]] = {}
    for each in _transaction_states(replica):
        found.setdefault(each[2].transactional_id, []).append(each)
    return found


def drop_coordinator_record(disks: Disks) -> Planted:
    """Drop the record of a transaction's decision (PrepareCommit) from __transaction_state, on all
    replicas.
    """
    for replicas in disks.of(TRANSACTIONS):
        for rows in _by_id(replicas[0]).values():
            for (_, _, _, before), (batch, _, key, value), (_, _, _, after) in zip(
                rows, rows[1:], rows[2:], strict=False
            ):
                if (
                    before.transaction_status == ONGOING
                    and value.transaction_status == TransactionState.PREPARE_COMMIT
                    and after.transaction_status == TransactionState.COMPLETE_COMMIT
                    and batch.view.record_count == 1
                    and batch.position > 0
                ):
                    replace_everywhere(replicas, batch.view.base_offset, lambda _: [])
                    return Planted(_anywhere(replicas), (key.transactional_id,))
    raise Unplantable("no whole transaction in __transaction_state")


def regress_transaction(disks: Disks) -> Planted:
    """Append an earlier state of a transactional id to __transaction_state, with a lower producer
    epoch, on all replicas.
    """
    for replicas in disks.of(TRANSACTIONS):
        for name, rows in _by_id(replicas[0]).items():
            _, record, key, value = rows[-1]
            if value.transaction_status not in COMPLETE or value.producer_epoch < 1:
                continue
            earlier = _state(value, producer_epoch=value.producer_epoch - 1)
            key_bytes, value_bytes = build_record(key, earlier, value_version(record.value or b""))
            places = _append_record(replicas, record, key_bytes, value_bytes)
            return Planted((*places, *_anywhere(replicas)), (name,))
    raise Unplantable("no transactional id with a producer epoch above 0")


def skip_transaction_state(disks: Disks) -> Planted:
    """Append CompleteCommit with a higher epoch of an id whose latest state is complete: nothing
    prepared it.
    """
    for replicas in disks.of(TRANSACTIONS):
        for name, rows in _by_id(replicas[0]).items():
            batch, record, key, value = rows[-1]
            if value.transaction_status != TransactionState.COMPLETE_COMMIT:
                continue
            version = value_version(record.value or b"")
            other = _state(
                value,
                transaction_status=int(TransactionState.COMPLETE_ABORT),
            )
            key_bytes, value_bytes = build_record(key, other, version)
            places = append(
                replicas,
                lambda end, epoch: build_batch(
                    [Record(timestamp=record.timestamp, key=key_bytes, value=value_bytes)],  # noqa: B023  (called in this turn of the loop)
                    base_offset=end,
                    leader_epoch=epoch,
                ),
            )
            del batch
            return Planted((*places, *_anywhere(replicas)), (name,))
    raise Unplantable("no transactional id whose last transaction was committed")


def _state(value: TransactionLogValue, **changes: object) -> TransactionLogValue:
    fields = {
        name: getattr(value, name)
        for name in (
            "producer_id",
            "previous_producer_id",
            "next_producer_id",
            "producer_epoch",
            "next_producer_epoch",
            "transaction_timeout_ms",
            "transaction_status",
            "transaction_partitions",
            "transaction_last_update_timestamp_ms",
            "transaction_start_timestamp_ms",
            "client_transaction_version",
        )
    }
    return TransactionLogValue(**{**fields, **changes})


def _anywhere(replicas: Sequence[Replica]) -> tuple[Place, ...]:
    return tuple(Place(str(each.log_dir), f"{each.directory.name}/") for each in replicas)


def unallocated_id(disks: Disks) -> Planted:
    """Append a batch of a producer id beyond every allocated block, to all replicas."""
    ids = [
        record.next_producer_id
        for record, _ in _metadata_values(disks)
        if isinstance(record, ProducerIdsRecord)
    ]
    if not ids:
        raise Unplantable("no ProducerIdsRecord")
    for replicas in disks.of():
        present = batches(replicas[0])
        if not present:
            continue
        now = present[-1].view.max_timestamp
        places = append(
            replicas,
            lambda end, epoch: build_batch(
                [Record(timestamp=now, value=b"of an unknown producer")],  # noqa: B023  (called in this turn of the loop)
                base_offset=end,
                leader_epoch=epoch,
                producer_id=max(ids) + 5000,
                producer_epoch=0,
                base_sequence=0,
            ),
        )
        return Planted((*places, *_anywhere(replicas)), (str(max(ids) + 5000),))
    raise Unplantable("no partition with batches")


def overlap_blocks(disks: Disks) -> Planted:
    """Append a ProducerIdsRecord with the same block as the one before, to every metadata log."""
    found = [
        (record, record_version(value))
        for record, value in _metadata_values(disks)
        if isinstance(record, ProducerIdsRecord)
    ]
    if not found:
        raise Unplantable("no ProducerIdsRecord")
    last, version = max(found, key=lambda each: each[0].next_producer_id)
    other = ProducerIdsRecord(
        broker_id=last.broker_id,
        broker_epoch=last.broker_epoch,
        next_producer_id=last.next_producer_id,
    )
    (replicas,) = disks.of(METADATA)
    _catch_up(replicas)
    places = append(
        replicas,
        lambda end, epoch: build_batch(
            [Record(timestamp=newest_ms(disks), value=build_metadata(other, version))],
            base_offset=end,
            leader_epoch=epoch,
        ),
    )
    return Planted(places, ())


def _catch_up(replicas: Sequence[Replica]) -> None:
    """Append to each metadata log what only the longest has: observers are stopped first."""
    longest = max(replicas, key=end_offset)
    for batch in batches(longest):
        behind = [each for each in replicas if end_offset(each) == batch.view.base_offset]
        append(behind, lambda _, __, data=batch.data: data)  # type: ignore[misc]  # a lambda with defaults
    for replica in replicas:
        known = (longest.directory / LEADER_EPOCHS).read_bytes()
        (replica.directory / LEADER_EPOCHS).write_bytes(known)


def offset_beyond_end(disks: Disks) -> Planted:
    """Append a group's offset that lies far beyond the end of its partition, to all replicas."""
    for replicas, (batch, record, key, value) in _offset_commits(disks):
        data = disks.partitions().get((key.topic, key.partition))
        if not data:
            continue
        other = OffsetCommitValue(
            offset=max(end_offset(each) for each in data) + BEYOND,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            commit_timestamp=value.commit_timestamp,
        )
        del batch
        key_bytes, value_bytes = build_record(key, other, value_version(record.value or b""))
        places = append(
            replicas,
            lambda end, epoch: build_batch(
                [Record(timestamp=record.timestamp, key=key_bytes, value=value_bytes)],  # noqa: B023  (called in this turn of the loop)
                base_offset=end,
                leader_epoch=epoch,
            ),
        )
        return Planted((*places, *_anywhere(replicas)), (key.group,))
    raise Unplantable("no offset of a group")


def undecided_offset(disks: Disks) -> Planted:
    """Append an offset of a transaction to __consumer_offsets whose coordinator has completed it
    long ago, without a marker.
    """
    for replicas, (batch, record, _, _) in _offset_commits(disks, transactional=True):
        producer_id = batch.view.producer_id
        markers = [
            each
            for each in batches(replicas[0])
            if each.is_marker and each.view.producer_id == producer_id
        ]
        if not markers:
            continue
        written = newest_ms(disks) - 3 * 3_600_000
        moved = record._replace(timestamp=written, offset=-1)
        places = append(
            replicas,
            lambda end, epoch: build_batch(
                [moved],  # noqa: B023  (called in this turn of the loop)
                base_offset=end,
                leader_epoch=epoch,
                producer_id=producer_id,  # noqa: B023  (called in this turn of the loop)
                producer_epoch=markers[-1].view.producer_epoch,  # noqa: B023  (called in this turn of the loop)
                base_sequence=batch.view.last_sequence + 1,  # noqa: B023  (called in this turn of the loop)
                transactional=True,
            ),
        )
        return Planted((*places, *_anywhere(replicas)), ())
    raise Unplantable("no transactional offset of a group")


def _offset_commits(
    disks: Disks, *, transactional: bool = False
) -> Iterator[tuple[list[Replica], tuple[Batch, Record, OffsetCommitKey, OffsetCommitValue]]]:
    for replicas in disks.of(OFFSETS):
        rows = list(coordinator_records(replicas[0], CoordinatorTopic.CONSUMER_OFFSETS))
        for batch, record, key, value in reversed(rows):
            if (
                isinstance(key, OffsetCommitKey)
                and isinstance(value, OffsetCommitValue)
                and batch.view.is_transactional == transactional
            ):
                yield replicas, (batch, record, key, value)


def _metadata_values(disks: Disks) -> Iterator[tuple[Message, bytes]]:
    for replicas in disks.of(METADATA):
        for batch in batches(replicas[0]):
            if not batch.view.is_control:
                for record in batch.view.records():
                    yield parse_metadata(record.value or b""), record.value or b""


def other_metadata(disks: Disks) -> Planted:
    """Change the leader of a PartitionRecord in the metadata log of one controller."""
    groups = disks.of(METADATA)
    if not groups or len(groups[0]) < 2:
        raise Unplantable("no two controllers")
    replica = groups[0][-1]
    for batch in batches(replica):
        if batch.view.is_control:
            continue
        for index, record in enumerate(batch.view.records()):
            parsed = parse_metadata(record.value or b"")
            if isinstance(parsed, PartitionRecord) and len(parsed.replicas) > 1:
                parsed.leader = next(each for each in parsed.replicas if each != parsed.leader)
                value = build_metadata(parsed, record_version(record.value or b""))

                def change(
                    records: list[Record], index: int = index, value: bytes = value
                ) -> list[Record]:
                    records[index] = records[index]._replace(value=value)
                    return records

                places = replace_everywhere(
                    [replica], batch.view.base_offset, lambda data: [with_records(data, change)]
                )
                return Planted((*places, Place(str(replica.log_dir), f"{METADATA}-0/")), ())
    raise Unplantable("no PartitionRecord with two replicas in the log")


def forgetful_snapshot(disks: Disks) -> Planted:
    """Leave one topic and its partitions out of the newest metadata snapshot of a controller."""
    for replicas in disks.of(METADATA):
        replica = replicas[-1]
        logged = {
            record.topic_id
            for record, _ in _metadata_values(disks)
            if isinstance(record, TopicRecord)
        }
        for file in sorted(replica.directory.glob("*.checkpoint"), reverse=True):
            data = file.read_bytes()
            records = [
                parse_metadata(record.value or b"")
                for batch in split_batches(data)
                if not batch.is_control
                for record in batch.records()
            ]
            topics = [
                each
                for each in records
                if isinstance(each, TopicRecord)
                and each.topic_id in logged
                and not each.name.startswith("__")
            ]
            if topics:
                gone = topics[0]
                parts = [_without(batch, gone.topic_id) for batch in split_batches(data)]
                file.chmod(0o600)
                file.write_bytes(b"".join(parts))
                return Planted(
                    (
                        Place(str(replica.log_dir), replica.name(file)),
                        Place(str(replica.log_dir), f"{METADATA}-0/"),
                    ),
                    (),
                )
    raise Unplantable("no metadata snapshot with a topic that the log creates")


def _without(batch: RecordBatch, topic_id: bytes) -> bytes:
    data = bytes(batch.view())
    if batch.is_control:
        return data
    kept = [
        record._replace(offset=-1)
        for record in batch.records()
        if getattr(parse_metadata(record.value or b""), "topic_id", None) != topic_id
    ]
    return build_batch(
        kept, base_offset=batch.base_offset, leader_epoch=batch.partition_leader_epoch
    )


def two_leaders(disks: Disks) -> Planted:
    """Let the quorum-state of a controller name another leader of the same epoch."""
    files = [
        replica.directory / QUORUM_STATE
        for replicas in disks.of(METADATA)
        for replica in replicas
        if (replica.directory / QUORUM_STATE).exists()
    ]
    if len(files) < 2:
        raise Unplantable("no two controllers")
    states = [json.loads(file.read_bytes()) for file in files]
    for file, state in zip(files, states, strict=True):
        for other in states:
            if (
                other is not state
                and other["leaderEpoch"] == state["leaderEpoch"]
                and other["leaderId"] >= 0
                and state["leaderId"] == other["leaderId"]
            ):
                nodes = [disks.node_of(each) for each in disks.log_dirs]
                state["leaderId"] = next(each for each in nodes if each != other["leaderId"])
                file.write_bytes(json.dumps(state, separators=(",", ":")).encode())
                log_dir = file.parents[1]
                return Planted((Place(str(log_dir), str(file.relative_to(log_dir))),), ())
    raise Unplantable("no two controllers that name a leader of one epoch")


def share_start_back(disks: Disks) -> Planted:
    """Append a share snapshot whose start offset lies before the one it follows, on all
    replicas.
    """
    for replicas in disks.of(SHARE):
        latest: dict[tuple[str, bytes, int], tuple[int, int]] = {}
        seen: dict[tuple[str, bytes, int], tuple[Record, ShareSnapshotKey, ShareSnapshotValue]] = {}
        for _, record, key, value in coordinator_records(
            replicas[0], CoordinatorTopic.SHARE_GROUP_STATE
        ):
            if isinstance(key, ShareSnapshotKey) and isinstance(value, ShareSnapshotValue):
                place = key.group_id, key.topic_id, key.partition
                seen[place] = record, key, value
                latest[place] = value.snapshot_epoch, value.start_offset
            if isinstance(key, ShareUpdateKey) and isinstance(value, ShareUpdateValue):
                place = key.group_id, key.topic_id, key.partition
                if value.start_offset >= 0 and place in latest:
                    latest[place] = latest[place][0], value.start_offset
        for place, (record, snapshot_key, snapshot) in seen.items():
            epoch, start = latest[place]
            if start < 2:
                continue
            back = ShareSnapshotValue(
                snapshot_epoch=epoch + 1,
                state_epoch=snapshot.state_epoch,
                leader_epoch=snapshot.leader_epoch,
                start_offset=start - 2,
                create_timestamp=snapshot.create_timestamp,
                write_timestamp=snapshot.write_timestamp,
                state_batches=[],
            )
            key_bytes, value_bytes = build_record(
                snapshot_key, back, value_version(record.value or b"")
            )
            places = append(
                replicas,
                lambda end, leader_epoch: build_batch(
                    [Record(timestamp=record.timestamp, key=key_bytes, value=value_bytes)],  # noqa: B023  (called in this turn of the loop)
                    base_offset=end,
                    leader_epoch=leader_epoch,
                ),
            )
            return Planted((*places, *_anywhere(replicas)), (place[0],))
    raise Unplantable("no share group that has moved its start offset")


def double_transactional_id(disks: Disks) -> Planted:
    """Append the state of another transactional id with the producer id of the first one."""
    for replicas in disks.of(TRANSACTIONS):
        for rows in _by_id(replicas[0]).values():
            _, record, _, value = rows[-1]
            if value.transaction_status not in COMPLETE:
                continue
            for name in (f"impostor-{number}" for number in range(1000)):
                if _partition_of(name, disks, TRANSACTIONS) == replicas[0].partition:
                    break
            other = _state(value, transaction_status=int(TransactionState.EMPTY))
            key_bytes, value_bytes = build_record(
                TransactionLogKey(transactional_id=name), other, value_version(record.value or b"")
            )
            places = _append_record(replicas, record, key_bytes, value_bytes)
            return Planted((*places, *_anywhere(replicas)), (name,))
    raise Unplantable("no transactional id that has completed a transaction")


def group_elsewhere(disks: Disks) -> Planted:
    """Append a group's offset to another partition of __consumer_offsets than its own."""
    groups = disks.of(OFFSETS)
    for _, (_, record, key, _) in _offset_commits(disks):
        for replicas in groups:
            own = _partition_of(key.group, disks, OFFSETS)
            if (
                replicas[0].partition != own
                and record.key is not None
                and all(map(batches, replicas))
            ):
                places = _append_record(replicas, record, record.key, record.value)
                return Planted((*places, *_anywhere(replicas)), (key.group,))
    raise Unplantable("no two partitions of __consumer_offsets with a group's offset")


def unknown_epoch(disks: Disks) -> Planted:
    """Append a group's offset with a leader epoch that its partition has not had yet."""
    for replicas, (_, record, key, value) in _offset_commits(disks):
        if (key.topic, key.partition) not in disks.partitions():
            continue
        other = OffsetCommitValue(
            offset=value.offset,
            leader_epoch=BEYOND,
            metadata=value.metadata,
            commit_timestamp=value.commit_timestamp,
        )
        version = value_version(record.value or b"")
        if version < 3:
            continue
        key_bytes, value_bytes = build_record(key, other, version)
        places = _append_record(replicas, record, key_bytes, value_bytes)
        return Planted((*places, *_anywhere(replicas)), (key.group,))
    raise Unplantable("no offset of a group with a leader epoch")


def _partition_of(name: str, disks: Disks, topic: str) -> int:
    count = 1 + max(number for each, number in disks.partitions() if each == topic)
    return partition_of(name, count)


def _append_record(
    replicas: Sequence[Replica], record: Record, key: bytes, value: bytes | None
) -> tuple[Place, ...]:
    return append(
        replicas,
        lambda end, epoch: build_batch(
            [Record(timestamp=record.timestamp, key=key, value=value)],
            base_offset=end,
            leader_epoch=epoch,
        ),
    )


def lose_metadata(disks: Disks) -> Planted:
    """Remove a batch from the metadata log of one controller, after its newest snapshot."""
    for replicas in disks.of(METADATA):
        replica = replicas[-1]
        present = batches(replica)
        covered = [int(file.name[:20]) for file in replica.directory.glob("*-*.checkpoint")]
        for batch in present[1:-2]:
            if batch.view.base_offset >= max(covered, default=0) and not batch.view.is_control:
                replace_everywhere([replica], batch.view.base_offset, lambda _: [])
                return Planted(_anywhere([replica]), ())
    raise Unplantable("no batches behind a metadata snapshot")


def lose_remote_segment(disks: Disks) -> Planted:
    """Delete the file of a remote segment."""
    file = _remote_log(disks)
    file.unlink()
    return Planted((), ("archive",))


def shorten_remote_segment(disks: Disks) -> Planted:
    """Cut the last bytes of a remote segment's file."""
    file = _remote_log(disks)
    with open(file, "r+b") as opened:
        opened.truncate(file.stat().st_size - 40)
    return Planted((), ("archive",))


def _remote_log(disks: Disks) -> Path:
    """Return the largest remote segment of a partition that still has all of its segments."""
    found = [
        file
        for place in disks.remote_dirs
        for file in sorted(place.rglob("*.log"))
        if file.stat().st_size > 100 and "archive" in str(file)
    ]
    if not found:
        raise Unplantable("no remote segment")
    return found[-1]


PLANTS = (
    plant_of(
        "coordinator-record-dropped",
        drop_coordinator_record,
        ["transaction-states-valid"],
        ["markers-decided"],
    ),
    plant_of(
        "transaction-state-regressed",
        regress_transaction,
        ["transaction-states-valid", "transactional-producers-advance"],
        ["decisions-marked", "transactions-end-in-time"],
    ),
    plant_of(
        "transaction-outcome-reversed",
        skip_transaction_state,
        ["transaction-states-valid"],
        ["markers-decided"],
    ),
    plant_of("producer-id-not-allocated", unallocated_id, ["producer-ids-allocated"]),
    plant_of("producer-id-blocks-overlap", overlap_blocks, ["producer-id-blocks-disjoint"]),
    plant_of("group-offset-beyond-end", offset_beyond_end, ["committed-offsets-not-beyond-end"]),
    plant_of(
        "transactional-offset-undecided",
        undecided_offset,
        ["transactional-offsets-decided", "no-hanging-transactions"],
    ),
    plant_of(
        "metadata-log-differs",
        other_metadata,
        ["metadata-logs-equal"],
        ["metadata-snapshots-equal-log"],
    ),
    plant_of(
        "metadata-snapshot-misses-topic", forgetful_snapshot, ["metadata-snapshots-equal-log"]
    ),
    plant_of("two-leaders-in-one-epoch", two_leaders, ["one-metadata-leader-per-epoch"]),
    plant_of(
        "transactional-id-doubled",
        double_transactional_id,
        ["one-transactional-id-per-producer-id"],
    ),
    plant_of("group-in-other-partition", group_elsewhere, ["groups-in-their-partition"]),
    plant_of("committed-epoch-unknown", unknown_epoch, ["committed-epochs-known"]),
    plant_of(
        "metadata-batch-missing",
        lose_metadata,
        ["metadata-log-contiguous"],
        ["metadata-logs-equal", "no-offset-gaps"],
    ),
    plant_of("share-start-offset-back", share_start_back, ["share-states-advance"]),
    plant_of("remote-segment-missing", lose_remote_segment, ["remote-segments-stored"]),
    plant_of("remote-segment-shorter", shorten_remote_segment, ["remote-segments-stored"]),
)
