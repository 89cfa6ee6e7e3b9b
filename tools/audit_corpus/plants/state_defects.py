"""Defects beside the logs: producer snapshots, checkpoints, epochs, replicas, directories."""

import re
import shutil
from pathlib import Path

from protocol.metadata.registry import parse_record
from protocol.metadata.topics import PartitionChangeRecord, PartitionRecord
from protocol.storage.file_names import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    REPLICATION_OFFSETS,
)
from protocol.storage.producer_snapshot import build_producer_rows, parse_producer_rows
from protocol.storage.text_files import (
    build_leader_epoch_checkpoint,
    build_partition_metadata,
    parse_leader_epoch_checkpoint,
    parse_partition_metadata,
)
from tools.audit_corpus.plants.disks import (
    METADATA,
    Disks,
    Place,
    Planted,
    Replica,
    Unplantable,
    batches,
    batches_of,
    checkpointed,
    end_offset,
    move_checkpoint,
    newest_ms,
    rewrite,
)
from tools.audit_corpus.plants.plant import plant_of

OTHER_TOPIC_ID = bytes(range(1, 17))
SETTLED_MS = 90_000


def _snapshots(replica: Replica) -> list[Path]:
    return sorted(replica.directory.glob("*.snapshot"))


def old_snapshot(disks: Disks) -> Planted:
    """Put the content of the oldest producer snapshot of a partition into its newest, on one
    replica.
    """
    for replicas in disks.of():
        replica = replicas[-1]
        files = _snapshots(replica)
        if len(files) < 2:
            continue
        first, last = (
            list(parse_producer_rows(files[0].read_bytes())),
            list(parse_producer_rows(files[-1].read_bytes())),
        )
        if not first or {row.producer_id: row for row in first} == {
            row.producer_id: row for row in last
        }:
            continue
        files[-1].write_bytes(files[0].read_bytes())
        return _in_file(replica, files[-1])
    raise Unplantable("no partition with two different producer snapshots")


def other_sequence(disks: Disks) -> Planted:
    """Raise the last sequence of a producer in the newest snapshot, with a checksum that fits."""
    for replicas in disks.of():
        replica = replicas[-1]
        for file in reversed(_snapshots(replica)[-1:]):
            rows = list(parse_producer_rows(file.read_bytes()))
            for index, row in enumerate(rows):
                if row.last_sequence >= 0:
                    rows[index] = row._replace(last_sequence=row.last_sequence + 7)
                    file.write_bytes(build_producer_rows(rows))
                    return _in_file(replica, file)
    raise Unplantable("no producer snapshot with a sequence")


def forgotten_transaction(disks: Disks) -> Planted:
    """Let the newest snapshot say that a producer has a transaction open which the log ends."""
    for replicas in disks.of():
        replica = replicas[-1]
        for file in _snapshots(replica)[-1:]:
            rows = list(parse_producer_rows(file.read_bytes()))
            for index, row in enumerate(rows):
                if row.coordinator_epoch >= 0 and row.current_transaction_first_offset < 0:
                    rows[index] = row._replace(
                        current_transaction_first_offset=max(row.last_offset, 0)
                    )
                    file.write_bytes(build_producer_rows(rows))
                    return _in_file(replica, file)
    raise Unplantable("no producer snapshot with a transactional producer")


def _in_file(replica: Replica, file: Path) -> Planted:
    return Planted((Place(str(replica.log_dir), replica.name(file)),), (replica.directory.name,))


def truncated(disks: Disks) -> Planted:
    """Cut the last batches of one replica below what the others have committed, and lower its own
    checkpoints, so that it looks sound by itself.
    """
    for replicas in disks.of():
        if len(replicas) < 2:
            continue
        replica = replicas[-1]
        log = replica.logs()[-1]
        present = batches_of(log)
        if len(present) < 4:
            continue
        kept = present[: len(present) // 2]
        end = kept[-1].view.next_offset
        rewrite(log, [each.data for each in kept])
        for suffix in (".timeindex", ".txnindex"):
            log.with_suffix(suffix).unlink(missing_ok=True)
        for snapshot in _snapshots(replica):
            if int(snapshot.stem) > end:
                snapshot.unlink()
        for name in (REPLICATION_OFFSETS, RECOVERY_POINTS):
            move_checkpoint(replica, name, lambda offset: min(offset, end))  # noqa: B023  (called in this turn of the loop)
        _drop_later_epochs(replica, end)
        return Planted(
            (Place(str(replica.log_dir), f"{replica.directory.name}/"),),
            (replica.directory.name,),
        )
    raise Unplantable("no partition with two replicas and four batches in its newest segment")


def _drop_later_epochs(replica: Replica, end: int) -> None:
    file = replica.directory / LEADER_EPOCHS
    starts = [
        each for each in parse_leader_epoch_checkpoint(file.read_bytes()) if each.start_offset < end
    ]
    file.write_bytes(build_leader_epoch_checkpoint(starts))


def foreign_epochs(disks: Disks) -> Planted:
    """Put the leader epoch checkpoint of another partition in place of a replica's own."""
    everyone = [replicas[-1] for replicas in disks.of()]
    for replica in everyone:
        own = (replica.directory / LEADER_EPOCHS).read_bytes()
        present = {each.view.partition_leader_epoch for each in batches(replica)}
        for other in everyone:
            theirs = (other.directory / LEADER_EPOCHS).read_bytes()
            starts = parse_leader_epoch_checkpoint(theirs)
            known = {each.leader_epoch for each in starts}
            if theirs != own and present and not present <= known:
                (replica.directory / LEADER_EPOCHS).write_bytes(theirs)
                return _epochs(replica)
    raise Unplantable("no partition whose epochs another one does not have")


def wrong_epoch_start(disks: Disks) -> Planted:
    """Let the last leader epoch of a replica's checkpoint start two batches later."""
    for replicas in disks.of():
        replica = replicas[-1]
        file = replica.directory / LEADER_EPOCHS
        starts = parse_leader_epoch_checkpoint(file.read_bytes())
        found = batches(replica)
        of_last = [
            each.view
            for each in found
            if starts and each.view.partition_leader_epoch == starts[-1].leader_epoch
        ]
        if len(of_last) > 3 and of_last[0].base_offset == starts[-1].start_offset:
            moved = starts[-1]._replace(start_offset=of_last[2].base_offset)
            file.write_bytes(build_leader_epoch_checkpoint([*starts[:-1], moved]))
            return _epochs(replica)
    raise Unplantable("no partition with four batches in its last epoch")


def _epochs(replica: Replica) -> Planted:
    return Planted(
        (
            Place(str(replica.log_dir), replica.name(replica.directory / LEADER_EPOCHS)),
            Place(str(replica.log_dir), f"{replica.directory.name}/"),
        ),
        (replica.directory.name,),
    )


def high_watermark_above(disks: Disks) -> Planted:
    """Raise the checkpointed high watermark of one replica above the end of its log."""
    for replicas in disks.of():
        replica = replicas[-1]
        if checkpointed(replica, REPLICATION_OFFSETS) is None or not batches(replica):
            continue
        end = end_offset(replica)
        move_checkpoint(replica, REPLICATION_OFFSETS, lambda _: end + 500)  # noqa: B023  (called in this turn of the loop)
        return Planted(
            (
                Place(str(replica.log_dir), REPLICATION_OFFSETS),
                Place(str(replica.log_dir), f"{replica.directory.name}/"),
            ),
            (replica.directory.name,),
        )
    raise Unplantable("no partition in replication-offset-checkpoint")


def recovery_point_above(disks: Disks) -> Planted:
    """Raise the checkpointed recovery point of one replica above the end of its log."""
    for replicas in disks.of():
        replica = replicas[-1]
        if checkpointed(replica, RECOVERY_POINTS) is None or not batches(replica):
            continue
        end = end_offset(replica)
        move_checkpoint(replica, RECOVERY_POINTS, lambda _: end + 300)  # noqa: B023  (called in this turn of the loop)
        return Planted(
            (
                Place(str(replica.log_dir), RECOVERY_POINTS),
                Place(str(replica.log_dir), f"{replica.directory.name}/"),
            ),
            (replica.directory.name,),
        )
    raise Unplantable("no partition in recovery-point-offset-checkpoint")


def wrong_topic_id(disks: Disks) -> Planted:
    """Give one replica's partition.metadata the id of another topic."""
    for replicas in disks.of():
        replica = replicas[-1]
        file = replica.directory / PARTITION_METADATA
        if file.exists() and parse_partition_metadata(file.read_bytes()) != OTHER_TOPIC_ID:
            file.write_bytes(build_partition_metadata(OTHER_TOPIC_ID))
            return Planted(
                (
                    Place(str(replica.log_dir), replica.name(file)),
                    Place(str(replica.log_dir), f"{replica.directory.name}/"),
                ),
                (),
            )
    raise Unplantable("no partition.metadata")


def stray_directory(disks: Disks) -> Planted:
    """Leave the directory of a partition that no topic has: a copy under another name and id."""
    if not disks.of(METADATA):
        raise Unplantable("no metadata log")
    for replicas in disks.of():
        replica = replicas[-1]
        if not batches(replica):
            continue
        ghost = replica.log_dir / "ghost-0"
        shutil.copytree(replica.directory, ghost)
        file = ghost / PARTITION_METADATA
        if file.exists():
            file.write_bytes(build_partition_metadata(OTHER_TOPIC_ID))
        return Planted((Place(str(replica.log_dir), "ghost-0/"),), ("ghost",))
    raise Unplantable("no partition with batches")


def other_cluster(disks: Disks) -> Planted:
    """Give the log directory of one node the id of another cluster."""
    if len(disks.log_dirs) < 2:
        raise Unplantable("no second log directory")
    file = disks.log_dirs[-1] / "meta.properties"
    text = file.read_text()
    file.write_text(re.sub(r"cluster\.id=\S+", "cluster.id=b3RoZXItY2x1c3Rlci1pZA", text))
    return Planted((Place(str(disks.log_dirs[-1]), "meta.properties"),), ())


def missing_directory(disks: Disks) -> Planted:
    """Delete the directory of one replica that has long been assigned."""
    newest = newest_ms(disks)
    changed = _changed_ms(disks)
    for replicas in disks.of():
        replica = replicas[-1]
        file = replica.directory / PARTITION_METADATA
        if len(replicas) < 2 or not file.exists():
            continue
        topic_id = parse_partition_metadata(file.read_bytes())
        if newest - changed.get((topic_id, replica.partition), newest) > SETTLED_MS:
            shutil.rmtree(replica.directory)
            return Planted((), (replica.directory.name,))
    raise Unplantable("no partition whose last change is a minute old")


def _changed_ms(disks: Disks) -> dict[tuple[bytes, int], int]:
    """Return when each partition changed last, by topic id and number; empty without a log."""
    found: dict[tuple[bytes, int], int] = {}
    for replicas in disks.of(METADATA):
        for batch in batches(replicas[0]):
            if batch.view.is_control:
                continue
            for record in batch.view.records():
                body = parse_record(record.value or b"")
                if isinstance(body, (PartitionRecord, PartitionChangeRecord)):
                    found[body.topic_id, body.partition_id] = record.timestamp
    return found


PLANTS = (
    plant_of("old-snapshot-put-back", old_snapshot, ["producer-snapshots-fit-logs"]),
    plant_of("snapshot-with-other-sequence", other_sequence, ["producer-snapshots-fit-logs"]),
    plant_of(
        "snapshot-with-open-transaction", forgotten_transaction, ["producer-snapshots-fit-logs"]
    ),
    plant_of(
        "replica-truncated", truncated, ["in-sync-replicas-complete"], ["producer-snapshot-at-end"]
    ),
    plant_of("epochs-of-another-partition", foreign_epochs, ["leader-epoch-checkpoints-fit-logs"]),
    plant_of("epoch-start-wrong", wrong_epoch_start, ["leader-epoch-checkpoints-fit-logs"]),
    plant_of(
        "high-watermark-above-end",
        high_watermark_above,
        ["offset-checkpoints-fit-logs"],
        ["in-sync-replicas-complete"],
    ),
    plant_of("recovery-point-above-end", recovery_point_above, ["offset-checkpoints-fit-logs"]),
    plant_of(
        "topic-id-wrong",
        wrong_topic_id,
        ["topic-ids-agree", "no-stray-partitions"],
        ["assigned-replicas-present"],
    ),
    plant_of("replica-directory-missing", missing_directory, ["assigned-replicas-present"]),
    plant_of("stray-directory", stray_directory, ["no-stray-partitions"]),
    plant_of("directory-of-another-cluster", other_cluster, ["directories-of-one-cluster"]),
)
