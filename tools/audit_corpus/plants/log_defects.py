"""Defects in the logs of users' topics: batches, sequences, markers, checksums, segments."""

from collections.abc import Sequence
from pathlib import Path

from protocol.records.batches import HEADER_SIZE_BYTES
from protocol.records.control_records import (
    EndTxnMarker,
    build_transaction_marker,
    parse_control_record,
)
from protocol.records.record import Record
from protocol.storage.indexes import (
    TIME_ENTRY,
    TRANSACTION_BYTES,
    OffsetEntry,
    build_offset_index,
    parse_offset_index,
)
from tools.audit_corpus.plants.disks import (
    Batch,
    Disks,
    Place,
    Planted,
    Replica,
    Unplantable,
    append,
    batch_at,
    batches,
    batches_of,
    flip_bit,
    newest_ms,
    replace_everywhere,
    search,
    with_fields,
    with_records,
)
from tools.audit_corpus.plants.plant import plant_of

SEQUENCE_STEP = 1_000_003
DECISIONS = ("transactions-commit-or-abort", "markers-decided", "decisions-marked")
HOURS_MS = 3 * 3_600_000


def turned(data: bytes) -> bytes:
    """Return a marker with the opposite result."""
    batch = Batch(Path(), 0, data)
    view = batch.view
    (record,) = view.records()
    body = parse_control_record(record.key, record.value)
    assert isinstance(body, EndTxnMarker), "it is a marker"
    return build_transaction_marker(
        commits=not batch.commits,
        producer_id=view.producer_id,
        producer_epoch=view.producer_epoch,
        coordinator_epoch=body.coordinator_epoch,
        timestamp=record.timestamp,
        base_offset=view.base_offset,
        leader_epoch=view.partition_leader_epoch,
    )


def cut_marker(disks: Disks) -> Planted:
    """Cut the last COMMIT marker of a producer out of all replicas."""
    for replicas, batch in search(disks.of(), lambda each: each.commits):
        producer_id = batch.view.producer_id
        later = [
            each
            for each in batches(replicas[0])
            if each.view.base_offset > batch.view.base_offset
            and each.view.producer_id == producer_id
        ]
        if not later and _has_segments_after(replicas[0], batch):
            replace_everywhere(replicas, batch.view.base_offset, lambda _: [])
            return Planted(_at_partition(replicas), (replicas[0].directory.name,))
    raise Unplantable("no COMMIT marker that is a producer's last batch and not the partition's")


def _has_segments_after(replica: Replica, batch: Batch) -> bool:
    return batches_of(batch.file)[-1].position > batch.position > 0


def _at_partition(replicas: Sequence[Replica]) -> tuple[Place, ...]:
    """Allow any file of the partition: what is missing has no place of its own."""
    return tuple(Place(str(each.log_dir), f"{each.directory.name}/") for each in replicas)


def cut_middle_marker(disks: Disks) -> Planted:
    """Cut a COMMIT marker out of all replicas after which its producer began the next
    transaction.
    """
    for replicas, batch in search(disks.of(), lambda each: each.commits):
        later = [
            each
            for each in batches(replicas[0])
            if each.view.base_offset > batch.view.base_offset
            and each.view.producer_id == batch.view.producer_id
            and each.is_data
        ]
        if later and batch.position > 0 and _has_segments_after(replicas[0], batch):
            replace_everywhere(replicas, batch.view.base_offset, lambda _: [])
            return Planted(_at_partition(replicas), (replicas[0].directory.name,))
    raise Unplantable("no COMMIT marker with a later transaction of its producer")


def turn_marker(disks: Disks) -> Planted:
    """Turn a COMMIT marker into ABORT on all replicas, not in the transaction index."""
    replicas, batch = disks.first(search(disks.of(), lambda each: each.commits), "COMMIT marker")
    places = replace_everywhere(replicas, batch.view.base_offset, lambda data: [turned(data)])
    return Planted((*places, *_at_partition(replicas)), (replicas[0].directory.name,))


def double_batch(disks: Disks) -> Planted:
    """Append an idempotent producer's batch once more, at new offsets, to all replicas."""
    replicas, batch = disks.first(
        search(disks.of(), lambda each: each.is_data and not each.view.is_transactional),
        "idempotent batch",
    )
    places = append(
        replicas,
        lambda end, epoch: with_fields(batch.data, base_offset=end, partition_leader_epoch=epoch),
    )
    return Planted(places, (replicas[0].directory.name,))


def _inner_of_producer(disks: Disks) -> tuple[list[Replica], Batch]:
    """Return a non-transactional batch with batches of its producer before and after it."""
    for replicas in disks.of():
        found = [
            each for each in batches(replicas[0]) if each.is_data and not each.view.is_transactional
        ]
        for before, batch, after in zip(found, found[1:], found[2:], strict=False):
            ids = {
                (each.view.producer_id, each.view.producer_epoch) for each in (before, batch, after)
            }
            if len(ids) == 1 and batch.position > 0:
                return replicas, batch
    raise Unplantable("no three idempotent batches of one producer in a row")


def remove_batch(disks: Disks) -> Planted:
    """Remove a batch from the middle of all replicas."""
    replicas, batch = _inner_of_producer(disks)
    replace_everywhere(replicas, batch.view.base_offset, lambda _: [])
    return Planted(_at_partition(replicas), (replicas[0].directory.name,))


def skip_sequences(disks: Disks) -> Planted:
    """Let a batch in the middle begin at a later sequence, on all replicas."""
    replicas, batch = _inner_of_producer(disks)
    places = replace_everywhere(
        replicas,
        batch.view.base_offset,
        lambda data: [with_fields(data, base_sequence=batch.view.base_sequence + SEQUENCE_STEP)],
    )
    return Planted(places, (replicas[0].directory.name,))


def lower_producer_epoch(disks: Disks) -> Planted:
    """Let a batch have a lower producer epoch than the batch of its producer before it."""
    for replicas in disks.of():
        last: dict[int, int] = {}
        for batch in batches(replicas[0]):
            view = batch.view
            if (
                batch.is_data
                and view.producer_epoch > 0
                and last.get(view.producer_id) == (view.producer_epoch)
            ):
                places = replace_everywhere(
                    replicas,
                    view.base_offset,
                    lambda data, epoch=view.producer_epoch: [  # type: ignore[misc]  # a lambda with defaults
                        with_fields(data, producer_epoch=epoch - 1)
                    ],
                )
                return Planted(places, (replicas[0].directory.name,))
            if view.producer_id >= 0:
                last[view.producer_id] = view.producer_epoch
    raise Unplantable("no producer with an epoch above 0 and two batches")


def leave_open(disks: Disks) -> Planted:
    """Append an old transactional batch of a producer whose transaction its coordinator has ended,
    without a marker.
    """
    for replicas in disks.of():
        last = {
            each.view.producer_id: each
            for each in batches(replicas[0])
            if each.view.is_transactional and each.is_data
        }
        ended = {each.view.producer_id: each for each in batches(replicas[0]) if each.is_marker}
        for producer_id, batch in last.items():
            if producer_id in ended:
                written = newest_ms(disks) - HOURS_MS
                sequence = batch.view.last_sequence + 1
                epoch = ended[producer_id].view.producer_epoch
                if epoch != batch.view.producer_epoch:
                    sequence = 0
                places = append(
                    replicas,
                    lambda end, leader_epoch: with_fields(
                        batch.data,  # noqa: B023  (called in this turn of the loop)
                        base_offset=end,
                        partition_leader_epoch=leader_epoch,
                        base_sequence=sequence,  # noqa: B023  (called in this turn of the loop)
                        producer_epoch=epoch,  # noqa: B023  (called in this turn of the loop)
                        base_timestamp=written,  # noqa: B023  (called in this turn of the loop)
                        max_timestamp=written,  # noqa: B023  (called in this turn of the loop)
                    ),
                )
                return Planted(places, (replicas[0].directory.name,))
    raise Unplantable("no transactional producer")


def change_record(disks: Disks) -> Planted:
    """Change one byte of one record on one replica, with a checksum that fits."""
    for replicas, batch in search(
        disks.of(), lambda each: not each.view.is_control and not each.view.attributes & 7
    ):
        if len(replicas) > 1:
            replica = replicas[-1]
            places = replace_everywhere(
                [replica],
                batch.view.base_offset,
                lambda data: [with_records(data, _with_other_value)],
            )
            return Planted(places, (replica.directory.name,))
    raise Unplantable("no partition with two replicas")


def _with_other_value(records: list[Record]) -> list[Record]:
    first, *rest = records
    value = first.value or b"?"
    return [first._replace(value=bytes([value[0] ^ 1]) + value[1:]), *rest]


def flip(disks: Disks) -> Planted:
    """Flip a bit of a record on one replica."""
    replicas, batch = disks.first(
        search(disks.of(), lambda each: not each.view.is_control), "batch of records"
    )
    replica = replicas[-1]
    found = batch_at(replica, batch.view.base_offset)
    flip_bit(found.file, found.position + HEADER_SIZE_BYTES + 6)
    place = Place(str(replica.log_dir), replica.name(found.file), -1, found.position)
    return Planted((place,), (replica.directory.name,))


def tear(disks: Disks) -> Planted:
    """Take the last bytes of a segment that is not the newest, on one replica."""
    for replicas in disks.of():
        replica = replicas[-1]
        if len(replica.logs()) > 1:
            log = replica.logs()[0]
            last = batches_of(log)[-1]
            with open(log, "r+b") as opened:
                opened.truncate(log.stat().st_size - 17)
            place = Place(str(replica.log_dir), replica.name(log), -1, last.position)
            return Planted((place,), (replica.directory.name,))
    raise Unplantable("no partition with two segments")


def lose_segment(disks: Disks) -> Planted:
    """Delete a segment from the middle of one replica, with its indexes."""
    for replicas in disks.of():
        replica = replicas[-1]
        if len(logs := replica.logs()) > 2:
            gone = logs[1]
            for suffix in (".log", ".index", ".timeindex", ".txnindex"):
                gone.with_suffix(suffix).unlink(missing_ok=True)
            return Planted(
                (Place(str(replica.log_dir), f"{replica.directory.name}/"),),
                (replica.directory.name,),
            )
    raise Unplantable("no partition with three segments")


def lower_leader_epoch(disks: Disks) -> Planted:
    """Raise the leader epoch of a batch in the middle, so that those behind it have a lower one."""
    replicas, batch = disks.first(
        search(disks.of(), lambda each: each.position > 0), "batch in the middle"
    )
    places = replace_everywhere(
        replicas,
        batch.view.base_offset,
        lambda data: [
            with_fields(data, partition_leader_epoch=batch.view.partition_leader_epoch + 1)
        ],
    )
    found = batches(replicas[0])
    following = found[[each.view.base_offset for each in found].index(batch.view.base_offset) + 1]
    return Planted(
        (*places, *_following(replicas, following.view.base_offset)),
        (replicas[0].directory.name,),
    )


def _following(replicas: Sequence[Replica], offset: int) -> list[Place]:
    return [
        Place(str(each.log_dir), each.name(batch_at(each, offset).file), offset)
        for each in replicas
    ]


def overlap_offsets(disks: Disks) -> Planted:
    """Let a batch begin at the offset of the batch before it, on all replicas."""
    replicas, batch = disks.first(
        search(
            disks.of(),
            lambda each: (
                not each.view.is_control and each.position > 0 and not each.view.has_producer_id
            ),
        ),
        "batch without a producer",
    )
    found = batches(replicas[0])
    place = [each.view.base_offset for each in found].index(batch.view.base_offset)
    lower = found[place - 1].view.base_offset
    places = replace_everywhere(
        replicas, batch.view.base_offset, lambda data: [with_fields(data, base_offset=lower)]
    )
    return Planted(
        tuple(Place(each.log_dir, each.file, -1, each.position) for each in places),
        (replicas[0].directory.name,),
    )


def _index_entries(replica: Replica, log_number: int) -> list[OffsetEntry]:
    index = replica.logs()[log_number].with_suffix(".index")
    return parse_offset_index(int(index.stem), index.read_bytes())


def wrong_index(disks: Disks) -> Planted:
    """Let an entry of an offset index point into the middle of a batch, on one replica."""
    for replicas in disks.of():
        replica = replicas[-1]
        for number, log in enumerate(replica.logs()):
            index = log.with_suffix(".index")
            if not index.exists() or len(data := index.read_bytes()) < 16 or not any(data[8:16]):
                continue
            entries = _index_entries(replica, number)
            entries[0] = entries[0]._replace(position=entries[0].position - 7)
            index.write_bytes(build_offset_index(int(index.stem), entries))
            return Planted(
                (
                    Place(str(replica.log_dir), replica.name(index)),
                    Place(str(replica.log_dir), replica.name(log)),
                ),
                (replica.directory.name,),
            )
    raise Unplantable("no offset index with two entries")


def wrong_time_index(disks: Disks) -> Planted:
    """Let an entry of a time index have an earlier timestamp than a record before it."""
    for replicas in disks.of():
        replica = replicas[-1]
        for log in replica.logs():
            index = log.with_suffix(".timeindex")
            if not index.exists() or len(data := index.read_bytes()) < 3 * TIME_ENTRY.size:
                continue
            last = len(data) - TIME_ENTRY.size
            if not any(data[last:]):
                continue
            timestamp, relative = TIME_ENTRY.unpack_from(data, last)
            index.write_bytes(data[:last] + TIME_ENTRY.pack(timestamp - HOURS_MS, relative))
            return Planted(
                (Place(str(replica.log_dir), replica.name(index)),), (replica.directory.name,)
            )
    raise Unplantable("no time index with three entries")


def drop_transaction_index(disks: Disks) -> Planted:
    """Remove the first entry of a transaction index on one replica."""
    for replicas in disks.of():
        replica = replicas[-1]
        for index in sorted(replica.directory.glob("*.txnindex")):
            if len(data := index.read_bytes()) >= TRANSACTION_BYTES:
                index.write_bytes(data[TRANSACTION_BYTES:])
                return Planted(
                    (
                        Place(str(replica.log_dir), replica.name(index)),
                        Place(str(replica.log_dir), f"{replica.directory.name}/"),
                    ),
                    (replica.directory.name,),
                )
    raise Unplantable("no transaction index with an entry")


def turn_marker_of_offsets(disks: Disks) -> Planted:
    """Turn a COMMIT marker of __consumer_offsets into ABORT: offsets of a committed transaction are
    discarded.
    """
    replicas, batch = disks.first(
        search(disks.of("__consumer_offsets"), lambda each: each.commits, inner=False),
        "COMMIT marker in __consumer_offsets",
    )
    places = replace_everywhere(replicas, batch.view.base_offset, lambda data: [turned(data)])
    return Planted((*places, *_at_partition(replicas)), (replicas[0].directory.name,))


def turn_abort(disks: Disks) -> Planted:
    """Turn an ABORT marker into COMMIT on all replicas: records that were aborted are read."""
    replicas, batch = disks.first(
        search(disks.of(), lambda each: each.is_marker and not each.commits), "ABORT marker"
    )
    places = replace_everywhere(replicas, batch.view.base_offset, lambda data: [turned(data)])
    return Planted((*places, *_at_partition(replicas)), (replicas[0].directory.name,))


def lower_coordinator_epoch(disks: Disks) -> Planted:
    """Append a marker once more, with a lower coordinator epoch than it had."""
    for replicas in disks.of():
        markers = [each for each in batches(replicas[0]) if each.commits]
        if markers:
            view = markers[-1].view
            places = append(
                replicas,
                lambda end, epoch: build_transaction_marker(
                    commits=True,
                    producer_id=view.producer_id,  # noqa: B023  (called in this turn of the loop)
                    producer_epoch=view.producer_epoch,  # noqa: B023  (called in this turn of the loop)
                    coordinator_epoch=-1,
                    timestamp=view.max_timestamp,  # noqa: B023  (called in this turn of the loop)
                    base_offset=end,
                    leader_epoch=epoch,
                ),
            )
            return Planted(places, (replicas[0].directory.name,))
    raise Unplantable("no COMMIT marker")


def _moved(data: bytes, base_offset: int, leader_epoch: int) -> bytes:
    return with_fields(data, base_offset=base_offset, partition_leader_epoch=leader_epoch)


def wrong_record_count(disks: Disks) -> Planted:
    """Count one record less in the header of a batch than it has offsets, on all replicas."""
    replicas, batch = disks.first(
        search(disks.of(), lambda each: not each.view.is_control and each.view.record_count > 1),
        "batch of several records",
    )
    places = replace_everywhere(
        replicas,
        batch.view.base_offset,
        lambda data: [with_fields(data, record_count=batch.view.record_count - 1)],
    )
    return Planted(places, (replicas[0].directory.name,))


PLANTS = (
    plant_of(
        "marker-cut-out",
        cut_marker,
        ["decisions-marked", "no-hanging-transactions", "no-offset-gaps"],
        ["producer-snapshots-fit-logs", "transaction-indexes-fit-logs"],
    ),
    plant_of(
        "earlier-marker-cut-out",
        cut_middle_marker,
        ["decisions-marked", "no-offset-gaps"],
        ["producer-snapshots-fit-logs", "transaction-indexes-fit-logs"],
    ),
    plant_of(
        "marker-turned",
        turn_marker,
        DECISIONS,
        ["transaction-indexes-fit-logs"],
    ),
    plant_of(
        "marker-of-offsets-turned",
        turn_marker_of_offsets,
        DECISIONS,
        ["transaction-indexes-fit-logs"],
    ),
    plant_of("abort-turned", turn_abort, DECISIONS, ["transaction-indexes-fit-logs"]),
    plant_of("coordinator-epoch-lower", lower_coordinator_epoch, ["producer-epochs-never-fall"]),
    plant_of("record-count-wrong", wrong_record_count, ["record-counts-fit"]),
    plant_of("batch-doubled", double_batch, ["batches-appended-once"], ["sequences-without-gaps"]),
    plant_of(
        "batch-removed",
        remove_batch,
        ["sequences-without-gaps", "no-offset-gaps"],
        ["producer-snapshots-fit-logs"],
    ),
    plant_of(
        "sequence-gap", skip_sequences, ["sequences-without-gaps"], ["producer-snapshots-fit-logs"]
    ),
    plant_of(
        "producer-epoch-lower",
        lower_producer_epoch,
        ["producer-epochs-never-fall"],
        ["sequences-without-gaps", "batches-appended-once", "producer-snapshots-fit-logs"],
    ),
    plant_of("transaction-left-open", leave_open, ["no-hanging-transactions"]),
    plant_of("record-changed", change_record, ["replicas-equal"]),
    plant_of("bit-flipped", flip, ["batch-checksums-fit"], ["replicas-equal"]),
    plant_of(
        "segment-torn",
        tear,
        ["segments-readable"],
        [
            "no-offset-gaps",
            "in-sync-replicas-complete",
            "indexes-fit-segments",
            "sequences-without-gaps",
            "producer-snapshots-fit-logs",
            "replicas-equal",
        ],
    ),
    plant_of(
        "segment-missing",
        lose_segment,
        ["no-offset-gaps"],
        [
            "in-sync-replicas-complete",
            "sequences-without-gaps",
            "producer-snapshots-fit-logs",
            "replicas-equal",
            "decisions-marked",
            "transaction-indexes-fit-logs",
        ],
    ),
    plant_of(
        "leader-epoch-lower",
        lower_leader_epoch,
        ["leader-epochs-never-fall"],
        ["leader-epoch-checkpoints-fit-logs"],
    ),
    plant_of(
        "offsets-overlap",
        overlap_offsets,
        ["offsets-grow"],
        ["no-offset-gaps", "indexes-fit-segments", "replicas-equal"],
    ),
    plant_of("index-entry-wrong", wrong_index, ["indexes-fit-segments"]),
    plant_of("time-index-entry-wrong", wrong_time_index, ["indexes-fit-segments"]),
    plant_of(
        "transaction-index-entry-removed", drop_transaction_index, ["transaction-indexes-fit-logs"]
    ),
)
