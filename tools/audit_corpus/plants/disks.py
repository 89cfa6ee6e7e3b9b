"""The log directories of a sound cluster, open for edits of single bytes, batches and records: what
plants are written with. Every edit recomputes lengths, checksums and the offset index, so that only
the defect is left.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from crc32c import crc32c

from protocol.coordinator.registry import CoordinatorTopic, parse_record
from protocol.records.batches import (
    COVERED_POSITION,
    HEADER,
    NO_PRODUCER_ID,
    RecordBatch,
    build_batch,
)
from protocol.records.control_records import (
    ControlType,
    EndTxnMarker,
    control_type,
    parse_control_record,
)
from protocol.records.record import Record, UnsupportedMagic
from protocol.schema import Message
from protocol.storage.file_names import (
    CLEANER_OFFSETS,
    LEADER_EPOCHS,
    PRODUCER_SNAPSHOT,
    RECOVERY_POINTS,
    REPLICATION_OFFSETS,
    parse_partition_directory_name,
    segment_file_name,
)
from protocol.storage.indexes import OFFSET_ENTRY, build_offset_index, parse_offset_index
from protocol.storage.producer_snapshot import (
    NO_TRANSACTION,
    ProducerRow,
    build_producer_rows,
    parse_producer_rows,
)
from protocol.storage.text_files import (
    EpochStart,
    TopicPartition,
    build_leader_epoch_checkpoint,
    build_offset_checkpoint,
    parse_leader_epoch_checkpoint,
    parse_meta_properties,
    parse_offset_checkpoint,
)

METADATA: Final = "__cluster_metadata"
TRANSACTIONS: Final = "__transaction_state"
OFFSETS: Final = "__consumer_offsets"
SHARE: Final = "__share_group_state"
REMOTE: Final = "__remote_log_metadata"
_FIELDS: Final = (
    "base_offset",
    "batch_length",
    "partition_leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
)


class Unplantable(Exception):
    """These directories do not have what the defect needs; the message says what."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One partition directory."""

    log_dir: Path
    directory: Path
    topic: str
    partition: int

    @property
    def key(self) -> TopicPartition:
        """Topic and partition."""
        return self.topic, self.partition

    def logs(self) -> list[Path]:
        """Return the segments, oldest first."""
        return sorted(self.directory.glob("*.log"))

    def name(self, file: Path) -> str:
        """Return the name of a file relative to the log directory."""
        return str(file.relative_to(self.log_dir))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a finding must point: a file, and an offset or a byte of it (-1: any)."""

    log_dir: str
    file: str
    offset: int = -1
    position: int = -1


@dataclass(frozen=True, slots=True)
class Planted:
    """A defect that lies on the disks now; a finding that names one of `places` has found it."""

    places: tuple[Place, ...]
    words: tuple[str, ...] = ()
    """Words that the finding's subject must contain, for example the partition."""


@dataclass(slots=True)
class Disks:
    """Log directories of one cluster, and directories of remote storage."""

    log_dirs: Sequence[Path]
    remote_dirs: Sequence[Path] = field(default_factory=tuple)

    def partitions(self) -> dict[TopicPartition, list[Replica]]:
        """Return the replicas of each partition, in the order of their names."""
        found: dict[TopicPartition, list[Replica]] = {}
        for log_dir in self.log_dirs:
            for directory in sorted(each for each in log_dir.iterdir() if each.is_dir()):
                name = parse_partition_directory_name(directory.name)
                if name is not None and list(directory.glob("*.log")):
                    replica = Replica(log_dir, directory, *name)
                    found.setdefault(replica.key, []).append(replica)
        return dict(sorted(found.items()))

    def of(self, *topics: str) -> list[list[Replica]]:
        """Return the replicas of the partitions of some topics; without any, of users' topics that
        compaction has not touched.
        """
        cleaned = self.cleaned()
        return [
            replicas
            for (topic, number), replicas in self.partitions().items()
            if (topic in topics if topics else topic[:1] not in "_@")
            and (topic, number) not in cleaned
        ]

    def cleaned(self) -> set[TopicPartition]:
        """Return the partitions that compaction has touched."""
        return {
            key
            for log_dir in self.log_dirs
            if (log_dir / CLEANER_OFFSETS).exists()
            for key, offset in parse_offset_checkpoint(
                (log_dir / CLEANER_OFFSETS).read_bytes()
            ).items()
            if offset > 0
        }

    def node_of(self, log_dir: Path) -> int:
        """Return the node id in meta.properties."""
        node_id = parse_meta_properties((log_dir / "meta.properties").read_bytes()).node_id
        assert node_id is not None, f"{log_dir} belongs to a node"
        return node_id

    def first(
        self, found: Iterator[tuple[list[Replica], "Batch"]], what: str
    ) -> tuple[list[Replica], "Batch"]:
        """Return the first batch that a search yields. Raises Unplantable."""
        try:
            return next(found)
        except StopIteration:
            raise Unplantable(f"no {what}") from None


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch on one replica."""

    file: Path
    position: int
    data: bytes

    @property
    def view(self) -> RecordBatch:
        """The header, decoded."""
        return RecordBatch(self.data)

    @property
    def is_marker(self) -> bool:
        """Whether it ends a transaction."""
        return self.view.is_control and self.view.producer_id != NO_PRODUCER_ID

    @property
    def commits(self) -> bool:
        """Whether it is a COMMIT marker."""
        return self.is_marker and _control_type(self.data) == ControlType.COMMIT

    @property
    def is_data(self) -> bool:
        """Whether it is a producer's batch with a sequence."""
        return not self.view.is_control and self.view.producer_id != NO_PRODUCER_ID


def _control_type(data: bytes) -> ControlType | None:
    (record,) = RecordBatch(data).records()
    return control_type(record.key)


def batches(replica: Replica) -> list[Batch]:
    """Return all batches of a replica, in order."""
    return [batch for log in replica.logs() for batch in batches_of(log)]


def batches_of(log: Path) -> list[Batch]:
    """Return the batches of one segment. Raises Unplantable for an older message format."""
    data = log.read_bytes()
    found, position = [], 0
    while position < len(data):
        try:
            view = RecordBatch(data, position)
        except UnsupportedMagic as older:
            raise Unplantable(str(older)) from older
        found.append(Batch(log, position, data[position : position + view.size_bytes]))
        position += view.size_bytes
    return found


def end_offset(replica: Replica) -> int:
    """Return one past the last offset of a replica."""
    found = batches(replica)
    return found[-1].view.next_offset if found else int(replica.logs()[-1].stem)


def search(
    groups: Iterable[list[Replica]], holds: Callable[[Batch], bool], *, inner: bool = True
) -> Iterator[tuple[list[Replica], Batch]]:
    """Yield (replicas, batch of the first replica) where a condition holds; with `inner` neither
    the first nor the last batch of the partition.
    """
    for replicas in groups:
        found = batches(replicas[0])
        for batch in found[1:-1] if inner else found:
            if holds(batch):
                yield replicas, batch


def with_fields(data: bytes, **fields: int) -> bytes:
    """Return a batch with other header fields, and the checksum that fits them."""
    values = dict(zip(_FIELDS, HEADER.unpack_from(data), strict=True))
    assert fields.keys() <= values.keys(), fields
    values.update(fields)
    changed = HEADER.pack(*values.values()) + data[HEADER.size :]
    values["crc"] = int(crc32c(changed[COVERED_POSITION:]))
    return HEADER.pack(*values.values()) + data[HEADER.size :]


def with_records(data: bytes, change: Callable[[list[Record]], list[Record]]) -> bytes:
    """Return a batch with other records and the same header otherwise."""
    view = RecordBatch(data)
    return build_batch(
        change(list(view.records())),
        base_offset=view.base_offset,
        leader_epoch=view.partition_leader_epoch,
        producer_id=view.producer_id,
        producer_epoch=view.producer_epoch,
        base_sequence=view.base_sequence,
        compression=view.compression,
        transactional=view.is_transactional,
        control=view.is_control,
        last_offset=view.last_offset,
    )


def replace_everywhere(
    replicas: Iterable[Replica], base_offset: int, new: Callable[[bytes], Sequence[bytes]]
) -> tuple[Place, ...]:
    """Replace the batch at an offset on each replica by others; return the places."""
    places = []
    for replica in replicas:
        batch = batch_at(replica, base_offset)
        rewrite(
            batch.file,
            [
                part
                for each in batches_of(batch.file)
                for part in (new(each.data) if each.position == batch.position else [each.data])
            ],
        )
        places.append(
            Place(str(replica.log_dir), replica.name(batch.file), base_offset, batch.position)
        )
    return tuple(places)


def batch_at(replica: Replica, base_offset: int) -> Batch:
    """Return the batch that begins at an offset. Raises Unplantable."""
    for batch in batches(replica):
        if batch.view.base_offset == base_offset:
            return batch
    raise Unplantable(f"a batch at offset {base_offset} of {replica.directory.name}")


def rewrite(log: Path, parts: Sequence[bytes]) -> None:
    """Write the batches of a segment, and move the entries of its offset index with them."""
    log.write_bytes(b"".join(parts))
    index = log.with_suffix(".index")
    if not index.exists():
        return
    starts: dict[int, int] = {}
    position = 0
    for part in parts:
        starts[RecordBatch(part).last_offset] = position
        position += len(part)
    base, data = int(log.stem), index.read_bytes()
    while data and not any(data[-OFFSET_ENTRY.size :]):
        data = data[: -OFFSET_ENTRY.size]
    entries = [
        entry._replace(position=starts[entry.offset])
        for entry in parse_offset_index(base, data)
        if entry.offset in starts and starts[entry.offset] > 0
    ]
    index.write_bytes(build_offset_index(base, entries))


def append(replicas: Iterable[Replica], build: Callable[[int, int], bytes]) -> tuple[Place, ...]:
    """Append a batch to each replica, given base offset and leader epoch, as if it were replicated
    and committed; return the places.
    """
    places = []
    replicas = list(replicas)
    leader_epoch = max(map(_last_epoch, replicas), default=0)
    for replica in replicas:
        log = replica.logs()[-1]
        end = end_offset(replica)
        data = build(end, leader_epoch)
        position = log.stat().st_size
        with open(log, "ab") as opened:
            opened.write(data)
        new_end = RecordBatch(data).next_offset
        _write_snapshot(replica, end, data)
        _write_epoch(replica, EpochStart(leader_epoch, end))
        for name in (REPLICATION_OFFSETS, RECOVERY_POINTS):
            move_checkpoint(
                replica,
                name,
                lambda offset, end=end, new=new_end: (  # type: ignore[misc]  # a lambda with defaults
                    new if offset == end else offset
                ),
            )
        places.append(Place(str(replica.log_dir), replica.name(log), end, position))
    return tuple(places)


def _last_epoch(replica: Replica) -> int:
    """Return the leader epoch of the next batch: the last that batches or the checkpoint know."""
    known = [batch.view.partition_leader_epoch for batch in batches(replica)[-1:]]
    file = replica.directory / LEADER_EPOCHS
    if file.exists():
        known += [each.leader_epoch for each in parse_leader_epoch_checkpoint(file.read_bytes())]
    return max(known, default=0)


def _write_epoch(replica: Replica, start: EpochStart) -> None:
    """Add a leader epoch to the checkpoint of a replica that has not seen it yet."""
    file = replica.directory / LEADER_EPOCHS
    known = parse_leader_epoch_checkpoint(file.read_bytes()) if file.exists() else []
    if known and known[-1].leader_epoch < start.leader_epoch:
        file.write_bytes(build_leader_epoch_checkpoint([*known, start]))


def _write_snapshot(replica: Replica, end: int, data: bytes) -> None:
    """Write the producer snapshot after a batch at the end of a log that has one before it, as a
    broker does when it is stopped.
    """
    before = replica.directory / segment_file_name(end, PRODUCER_SNAPSHOT)
    if not before.exists():
        return
    rows = {row.producer_id: row for row in parse_producer_rows(before.read_bytes())}
    view = RecordBatch(data)
    if view.producer_id != NO_PRODUCER_ID:
        own = rows.pop(
            view.producer_id,
            ProducerRow(view.producer_id, -1, -1, -1, 0, -1, -1, NO_TRANSACTION),
        )
        if view.is_control:
            (record,) = view.records()
            marker = parse_control_record(record.key, record.value)
            assert isinstance(marker, EndTxnMarker), "producers' control batches are markers"
            if view.producer_epoch != own.producer_epoch:
                own = own._replace(last_sequence=-1, last_offset=-1, offset_delta=0)
            own = own._replace(
                timestamp=view.max_timestamp,
                coordinator_epoch=marker.coordinator_epoch,
                current_transaction_first_offset=NO_TRANSACTION,
            )
        else:
            is_open = own.current_transaction_first_offset != NO_TRANSACTION
            own = own._replace(
                last_sequence=view.last_sequence,
                last_offset=view.last_offset,
                offset_delta=view.last_offset_delta,
                timestamp=view.max_timestamp,
                current_transaction_first_offset=own.current_transaction_first_offset
                if is_open or not view.is_transactional
                else view.base_offset,
            )
        rows[view.producer_id] = own._replace(producer_epoch=view.producer_epoch)
    after = replica.directory / segment_file_name(view.next_offset, PRODUCER_SNAPSHOT)
    after.write_bytes(build_producer_rows(rows.values()))


def move_checkpoint(replica: Replica, name: str, change: Callable[[int], int]) -> bool:
    """Change the entry of a partition in a checkpoint of its log directory; return whether there
    was one.
    """
    file = replica.log_dir / name
    if not file.exists():
        return False
    offsets = parse_offset_checkpoint(file.read_bytes())
    if replica.key not in offsets:
        return False
    offsets[replica.key] = change(offsets[replica.key])
    file.write_bytes(build_offset_checkpoint(offsets))
    return True


def checkpointed(replica: Replica, name: str) -> int | None:
    """Return the entry of a partition in a checkpoint of its log directory."""
    file = replica.log_dir / name
    return parse_offset_checkpoint(file.read_bytes()).get(replica.key) if file.exists() else None


def coordinator_records(
    replica: Replica, topic: CoordinatorTopic
) -> Iterator[tuple[Batch, Record, Message, Message | None]]:
    """Yield the records of a coordinator's partition with their batches, keys and values."""
    for batch in batches(replica):
        if batch.view.is_control:
            continue
        for record in batch.view.records():
            parsed = parse_record(topic, record.key or b"", record.value)
            if parsed is not None:
                yield batch, record, *parsed


def newest_ms(disks: Disks) -> int:
    """Return the latest timestamp of any batch."""
    return max(
        batch.view.max_timestamp
        for replicas in disks.partitions().values()
        for batch in batches(replicas[0])
    )


def flip_bit(file: Path, position: int) -> None:
    """Flip one bit."""
    data = bytearray(file.read_bytes())
    data[position] ^= 0x10
    file.write_bytes(data)
