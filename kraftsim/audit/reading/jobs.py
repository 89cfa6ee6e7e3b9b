"""Reads one range of a segment, or one small file: what a worker process, or a task of Spark, does.

Source: none of Kafka's; the formats are in the modules that are called.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from kraftsim.audit.reading.disks import FileSource, disk_of
from kraftsim.audit.reading.indexes import (
    IndexComparison,
    offset_index_pieces,
    time_index_pieces,
    transaction_index_pieces,
)
from kraftsim.audit.reading.internal import (
    DECODERS,
    TABLES_OF,
    Decode,
    RecordPlace,
    internal_rows,
    metadata_rows,
)
from kraftsim.audit.reading.layout import CHECKPOINT, LIVE
from kraftsim.audit.reading.pieces import Origin, TablePiece
from kraftsim.audit.reading.plan import (
    SMALL_FILE_BYTES_MAX,
    ListedFile,
    ScannedDirectory,
    segment_ranges,
)
from kraftsim.audit.reading.record_walk import Longs
from kraftsim.audit.reading.records import record_pieces
from kraftsim.audit.reading.segments import (
    FoundBatches,
    RangeEnds,
    RangeReader,
    SegmentRange,
    batch_rows,
    control_of,
    last_offset_of,
)
from kraftsim.audit.reading.small_files import (
    leader_epoch_pieces,
    producer_snapshot_pieces,
    quorum_state_pieces,
)
from protocol.records.batches import RecordBatch
from protocol.records.control_records import ControlType
from protocol.storage import file_names
from protocol.storage.file_names import parse_metadata_snapshot_name


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallFile:
    """A file that is read as a whole; of a time index also its segment is needed."""

    origin: Origin
    kind: str
    base_offset: int = 0
    segment: SegmentRange | None = None


Job: TypeAlias = SegmentRange | SmallFile
Allows: TypeAlias = Callable[[Origin], bool]
"""Returns whether a file is read: by what its path says, but for the name of the file."""
PRUNING: Final = ("log_dir", "node_id", "directory", "topic", "partition")
"""Columns whose values are known before the files of a partition are opened."""
JOB_BYTES: Final = 1 << 18
"""As many bytes of a segment take as long as opening another file."""
PROBLEMS: Final = "problems"
OF_SMALL_FILES: Final[Mapping[str, tuple[str, ...]]] = {
    "index": ("offset_index",),
    "timeindex": ("time_index",),
    "txnindex": ("aborted_transactions",),
    "snapshot": ("producer_snapshots",),
    CHECKPOINT: TABLES_OF[file_names.METADATA_TOPIC],
    file_names.BOOTSTRAP_CHECKPOINT: TABLES_OF[file_names.METADATA_TOPIC],
    file_names.LEADER_EPOCHS: ("leader_epochs",),
    file_names.QUORUM_STATE: ("quorum_states",),
}
"""By kind of file: the tables that it has rows for, besides `problems`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What is read of segments; `tables` are those whose rows are wanted, all if there are none."""

    with_records: bool = False
    with_crc: bool = True
    tables: frozenset[str] = frozenset()

    def wants(self, *tables: str) -> bool:
        """Return whether rows of one of these tables are wanted."""
        return not self.tables or not self.tables.isdisjoint(tables)


def tables_of(job: Job) -> tuple[str, ...]:
    """Return the tables that a job can have rows for."""
    if isinstance(job, SmallFile):
        return (PROBLEMS, *OF_SMALL_FILES[job.kind])
    return (PROBLEMS, "batches", "records", *TABLES_OF.get(job.origin.topic or "", ()))


def size_of(job: Job) -> int:
    """Return the bytes that a job reads, about."""
    return job.end - job.start if isinstance(job, SegmentRange) else job.origin.size


def jobs_of(disk: FileSource, directory: ScannedDirectory, allows: Allows) -> list[Job]:
    """Return what is to be read of a log directory, of files that are allowed; ranges are in the
    order of each log.
    """
    jobs: list[Job] = []
    for partition in directory.partitions:
        if not allows(partition.origin):
            continue
        ranges = segment_ranges(disk, partition)
        jobs += ranges
        whole = _whole_segments(ranges)
        for file in partition.others.values():
            jobs += _small_file(file, whole)
    for file in directory.files:
        is_bootstrap = file.name.kind == file_names.BOOTSTRAP_CHECKPOINT and not file.trouble
        if is_bootstrap and allows(file.origin):
            jobs += _small_file(file, {})
    return jobs


def weight_of(job: Job) -> int:
    """Return how long a job takes, in bytes of a segment."""
    return size_of(job) + JOB_BYTES


def shares(jobs: Iterable[Job], size: int) -> list[list[Job]]:
    """Divide jobs into shares of about a weight, in their order."""
    found: list[list[Job]] = []
    filled = size
    for job in jobs:
        if filled >= size:
            found.append([])
            filled = 0
        found[-1].append(job)
        filled += weight_of(job)
    return found


def _whole_segments(ranges: list[SegmentRange]) -> dict[int, SegmentRange]:
    """Return a range of each whole segment, by its base offset."""
    return {
        each.base_offset: SegmentRange(
            origin=each.origin,
            base_offset=each.base_offset,
            start=0,
            end=each.origin.size,
            is_last=True,
            is_newest=each.is_newest,
            index=each.index,
        )
        for each in ranges
    }


def _small_file(file: ListedFile, segments: dict[int, SegmentRange]) -> Iterator[Job]:
    if file.name.kind in OF_SMALL_FILES and file.name.state == LIVE:
        base_offset = file.name.base_offset or 0
        segment = segments.get(base_offset) if file.name.kind == "timeindex" else None
        yield SmallFile(
            origin=file.origin, kind=file.name.kind, base_offset=base_offset, segment=segment
        )


def read(job: Job, options: ReadOptions) -> Generator[TablePiece, None, RangeEnds]:
    """Yield the rows of a job; return the ends of a range."""
    disk = disk_of(job.origin.log_dir)
    try:
        if isinstance(job, SegmentRange):
            return (yield from _range(disk, job, options))
        yield from _file(disk, job)
    except OSError as failure:
        yield job.origin.problem("unreadable", failure.strerror or str(failure))
    return RangeEnds()


def _range(
    disk: FileSource, part: SegmentRange, options: ReadOptions
) -> Generator[TablePiece, None, RangeEnds]:
    topic = part.origin.topic or ""
    is_internal = topic in DECODERS
    decode = DECODERS[topic] if is_internal and options.wants(*TABLES_OF[topic], PROBLEMS) else None
    reader = RangeReader(disk, part, with_crc=options.with_crc or is_internal)
    index = IndexComparison(disk, part)
    first_offset: int | None = None
    end_offset: int | None = None
    for found in reader.found():
        if isinstance(found, TablePiece):
            yield found
            index.pass_over(*_span(found))
            continue
        ends = yield from batch_rows(part, found, with_rows=options.wants("batches"))
        first_offset = ends.first_offset if first_offset is None else first_offset
        end_offset = end_offset if ends.end_offset is None else ends.end_offset
        index.see(*_starts(found, part.base_offset))
        if decode is not None:
            yield from _decoded(part, found, decode)
        if options.with_records and options.wants("records", PROBLEMS):
            yield from record_pieces(part, found)
    yield from index.pieces()
    return RangeEnds(first_offset, end_offset)


def _span(problem: TablePiece) -> tuple[int, int]:
    """Return position and size of the bytes that are no batch."""
    assert isinstance(problem.rows, list)
    _, _, _, _, _, _, position, size, *_ = problem.rows[0]
    assert isinstance(position, int) and isinstance(size, int), "they are known for batches"
    return position, size


def _starts(found: FoundBatches, base_offset: int) -> tuple[Longs, Longs]:
    """Return the positions in the file, and the base offsets; of a wrapper of an old format the
    lowest that it can have.
    """
    if found.old is None:
        return found.positions + found.shift, found.headers["base_offset"].astype(np.int64)
    return np.array([found.old.position + found.shift]), np.array([base_offset])


def _decoded(part: SegmentRange, found: FoundBatches, decode: Decode) -> Iterator[TablePiece]:
    for batch in found.batches():
        yield from internal_rows(
            decode, RecordPlace(part.origin, batch.position + found.shift, batch)
        )


def _file(disk: FileSource, job: SmallFile) -> Iterator[TablePiece]:
    if job.kind in (CHECKPOINT, file_names.BOOTSTRAP_CHECKPOINT):
        yield from _metadata_snapshot(disk, job)
        return
    if job.origin.size > SMALL_FILE_BYTES_MAX:
        yield job.origin.problem(
            "unsupported", f"{job.origin.size} bytes are too many for a file of this kind"
        )
        return
    content = disk.read(job.origin.path, 0, job.origin.size)
    match job.kind:
        case "index":
            yield from offset_index_pieces(job.origin, job.base_offset, content)
        case "timeindex":
            end = None if job.segment is None else last_offset_of(disk, job.segment)
            yield from time_index_pieces(job.origin, job.base_offset, content, end)
        case "txnindex":
            yield from transaction_index_pieces(job.origin, job.base_offset, content)
        case "snapshot":
            yield from producer_snapshot_pieces(job.origin, job.base_offset, content)
        case file_names.LEADER_EPOCHS:
            yield from leader_epoch_pieces(job.origin, content)
        case file_names.QUORUM_STATE:
            yield from quorum_state_pieces(job.origin, content)


def _metadata_snapshot(disk: FileSource, job: SmallFile) -> Iterator[TablePiece]:
    """Yield the records of a snapshot of the metadata log, or of bootstrap.checkpoint."""
    name = parse_metadata_snapshot_name(job.origin.file.rpartition("/")[2])
    snapshot = (0, 0) if name is None else (name.end_offset, name.leader_epoch)
    part = SegmentRange(
        origin=job.origin,
        base_offset=0,
        start=0,
        end=job.origin.size,
        is_last=True,
        is_newest=False,
    )
    is_complete = False
    for found in RangeReader(disk, part, with_crc=True).found():
        if isinstance(found, TablePiece):
            yield found
            continue
        yield from _problems(batch_rows(part, found))
        for batch in found.batches():
            place = RecordPlace(job.origin, batch.position + found.shift, batch, snapshot)
            yield from internal_rows(metadata_rows, place)
            if isinstance(batch, RecordBatch) and batch.is_control:
                is_complete = control_of(batch)[0] == ControlType.SNAPSHOT_FOOTER.name
    if not is_complete:
        yield job.origin.problem("torn", "the snapshot does not end with a footer")


def _problems(pieces: Iterator[TablePiece]) -> Iterator[TablePiece]:
    return (piece for piece in pieces if piece.table == "problems")
