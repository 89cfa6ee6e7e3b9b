"""Finds the log directories below a directory, and plans what is read of them.

A directory is a log directory if a file of one lies in it (meta.properties, a checkpoint), or the
directory of a partition. Other directories are looked into: a directory may hold those of several
nodes. The batches of a partition whose directory is marked for deletion, or that is stray, are not
read: it is out of the log.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kraftsim.analysis.places import Where
from kraftsim.audit.reading import layout
from kraftsim.audit.reading.disks import DiskFile, FileSource, disk_of, named, readable
from kraftsim.audit.reading.layout import FUTURE, LIVE, DirectoryName, FileName
from kraftsim.audit.reading.pieces import Origin, Row, TablePiece, shown
from kraftsim.audit.reading.segments import RangeEnds, SegmentRange, ranges_of
from kraftsim.audit.reading.small_files import meta_properties_of, offsets_of, topic_id_of
from protocol.storage import file_names
from protocol.storage.text_files import MetaProperties
from protocol.uuids import uuid_text

SMALL_FILE_BYTES_MAX: Final = 64 << 20
"""A file that is read as a whole, and is larger, is not what its name says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """A file with what its path says."""

    origin: Origin
    name: FileName
    state: str
    modified_ms: int | None
    trouble: str = ""


@dataclass(slots=True)
class Partition:
    """The files of one directory of a partition, live or the future replica of a move."""

    origin: Origin
    """Without a file."""
    name: DirectoryName
    topic_id: str | None = None
    segments: list[ListedFile] = field(default_factory=list)
    """In the order of the log."""
    others: dict[str, ListedFile] = field(default_factory=dict)
    """By name: all other live files."""


@dataclass(slots=True)
class ScannedDirectory:
    """One log directory: its files, what its own files say, and rows about all that."""

    path: str
    files: list[ListedFile]
    meta: MetaProperties | None
    partitions: list[Partition] = field(default_factory=list)
    checkpoints: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)
    pieces: list[TablePiece] = field(default_factory=list)


def all_log_directories(places: Iterable[Where]) -> list[ScannedDirectory]:
    """Return the log directories of several places; one that is named twice, once."""
    found = [each for place in places for each in log_directories(place)]
    return list({each.path: each for each in found}.values())


def log_directories(place: Where) -> list[ScannedDirectory]:
    """Return the log directories that a directory is or holds.

    One without any is a AuditedDirectory without files, with the problem as its row.
    """
    root = str(place)
    try:
        root = named(place)
        disk = disk_of(root)
        found = list(disk.walk(root))
    except OSError as failure:
        return [_nothing(root, failure.strerror or str(failure))]
    homes = _homes(found, root)
    if not homes:
        return [_nothing(root, "no log directory is in it")]
    return [_log_directory(disk, path, files) for path, files in sorted(homes.items())]


def _homes(found: Iterable[DiskFile], root: str) -> dict[str, list[DiskFile]]:
    """Group the files by log directory; their paths become relative to it."""
    files = list(found)
    prefixes: set[str] = set()
    for file in files:
        home = _home(file.path)
        if home is not None:
            prefixes.add(home)
    if not prefixes and layout.parse_directory(root.rpartition("/")[2]) is not None:
        parent, _, name = root.rpartition("/")
        if any(layout.parse_file(file.path).kind != layout.UNKNOWN for file in files):
            return {parent or "/": [file._replace(path=f"{name}/{file.path}") for file in files]}
    homes: dict[str, list[DiskFile]] = {}
    for file in files:
        inside = [each for each in prefixes if file.path.startswith(each)]
        if inside:
            home = max(inside, key=len)
            path = f"{root}/{home}".rstrip("/") or "/"
            homes.setdefault(path, []).append(file._replace(path=file.path[len(home) :]))
    return homes


def _home(path: str) -> str | None:
    """Return the prefix of the log directory that a file says it is in, None if it does not."""
    parts = path.split("/")
    if parts[-1] in layout.OF_LOG_DIR and parts[-1] != ".lock":
        return "".join(f"{part}/" for part in parts[:-1])
    if (
        len(parts) > 1
        and layout.parse_directory(parts[-2]) is not None
        and layout.parse_file(parts[-1]).kind != layout.UNKNOWN
    ):
        return "".join(f"{part}/" for part in parts[:-2])
    return None


def _nothing(root: str, reason: str) -> ScannedDirectory:
    return ScannedDirectory(
        root, [], None, pieces=[_origin(root, None).problem("unreadable", reason)]
    )


def _origin(
    log_dir: str, node_id: int | None, file: str = "", size: int = 0, directory: str | None = None
) -> Origin:
    parsed = None if directory is None else layout.parse_directory(directory)
    return Origin(
        log_dir=shown(log_dir),
        node_id=node_id,
        directory=None if directory is None else shown(directory),
        topic=None if parsed is None else shown(parsed.topic),
        partition=None if parsed is None else parsed.partition,
        file=shown(file),
        size=size,
        path=f"{log_dir}/{file}",
    )


def _log_directory(disk: FileSource, path: str, found: Sequence[DiskFile]) -> ScannedDirectory:
    pieces: list[TablePiece] = []
    meta: MetaProperties | None = None
    content = _content(disk, path, found, file_names.META_PROPERTIES)
    if content is not None:
        origin = _origin(path, None, file_names.META_PROPERTIES, len(content))
        meta, problems = meta_properties_of(origin, content)
        pieces += problems
    node_id = None if meta is None else meta.node_id
    files = [_listed(path, node_id, file) for file in found if not file.path.endswith("/")]
    directory = ScannedDirectory(path, files, meta, pieces=pieces)
    _add_partitions(disk, directory)
    _add_troubles(directory, node_id, found)
    for name in layout.OFFSET_CHECKPOINTS:
        content = _content(disk, path, found, name)
        if content is not None:
            offsets, rows = offsets_of(_origin(path, node_id, name, len(content)), content)
            directory.checkpoints[name] = offsets
            pieces += rows
    pieces.append(TablePiece("log_dirs", [_row(directory, node_id)]))
    pieces.append(TablePiece("files", list(_file_rows(directory))))
    return directory


def _content(disk: FileSource, path: str, found: Iterable[DiskFile], name: str) -> bytes | None:
    for file in found:
        if file.path == name and file.size <= SMALL_FILE_BYTES_MAX and not file.trouble:
            return readable(disk, f"{path}/{name}", file.size)
    return None


def _listed(log_dir: str, node_id: int | None, file: DiskFile) -> ListedFile:
    parts = file.path.split("/")
    directory = parts[0] if len(parts) > 1 else None
    name = layout.parse_file(parts[-1]) if len(parts) <= 2 else FileName(layout.UNKNOWN)
    state = name.state
    parsed = None if directory is None else layout.parse_directory(directory)
    if parsed is not None and state == LIVE:
        state = parsed.state
    return ListedFile(
        origin=_origin(log_dir, node_id, file.path, file.size, directory),
        name=name,
        state=state,
        modified_ms=file.modified_ms,
        trouble=file.trouble,
    )


def _add_partitions(disk: FileSource, directory: ScannedDirectory) -> None:
    """Fill in the partitions whose logs are read."""
    partitions: dict[str, Partition] = {}
    for file in directory.files:
        origin = file.origin
        if origin.directory is None or file.state not in (LIVE, FUTURE):
            continue
        parsed = layout.parse_directory(origin.directory)
        if parsed is None or origin.file.count("/") != 1 or file.trouble:
            continue
        partition = partitions.setdefault(origin.directory, Partition(origin, parsed))
        if file.name.kind == "log":
            partition.segments.append(file)
        else:
            partition.others[origin.file.partition("/")[2]] = file
    for partition in partitions.values():
        partition.segments.sort(key=lambda each: each.name.base_offset or 0)
        metadata = partition.others.get(file_names.PARTITION_METADATA)
        if metadata is not None:
            size = min(metadata.origin.size, SMALL_FILE_BYTES_MAX)
            content = readable(disk, metadata.origin.path, size)
            if content is not None:
                partition.topic_id, problems = topic_id_of(metadata.origin, content)
                directory.pieces += problems
    directory.partitions = [partitions[name] for name in sorted(partitions)]


def _add_troubles(
    directory: ScannedDirectory, node_id: int | None, found: Sequence[DiskFile]
) -> None:
    """Add a row of `problems` for each file that cannot be opened, and for foreign directories."""
    for file in found:
        if file.trouble:
            origin = _listed(directory.path, node_id, file).origin
            directory.pieces.append(origin.problem("unreadable", file.trouble))
    foreign = {file.path.partition("/")[0] for file in found if "/" in file.path}
    for name in sorted(foreign - set(layout.OTHER_DIRECTORIES)):
        if layout.parse_directory(name) is None:
            origin = _origin(directory.path, node_id, f"{name}/", directory=name)
            reason = f"{shown(name)} is no directory of a partition"
            directory.pieces.append(origin.problem("name", reason))


def _row(directory: ScannedDirectory, node_id: int | None) -> Row:
    meta = directory.meta
    names = {file.origin.file for file in directory.files}
    times = [each.modified_ms for each in directory.files if each.modified_ms is not None]
    directory_id = None if meta is None or meta.directory_id is None else meta.directory_id
    return (
        shown(directory.path),
        node_id,
        None if meta is None else meta.cluster_id,
        None if directory_id is None else uuid_text(directory_id),
        None if meta is None else meta.version,
        file_names.CLEAN_SHUTDOWN in names,
        any(
            each.name.topic == file_names.METADATA_TOPIC and each.name.partition == 0
            for each in directory.partitions
        ),
        max(times, default=None),
    )


def _file_rows(directory: ScannedDirectory) -> Iterator[Row]:
    topic_ids: Mapping[str | None, str | None] = {
        each.origin.directory: each.topic_id for each in directory.partitions
    }
    for file in directory.files:
        yield (
            *file.origin.prefix,
            topic_ids.get(file.origin.directory),
            file.name.kind,
            file.name.base_offset,
            file.origin.size,
            file.modified_ms,
            file.state,
        )


def segment_ranges(disk: FileSource, partition: Partition) -> list[SegmentRange]:
    """Return the ranges in which the log of a partition is read, in its order."""
    ranges: list[SegmentRange] = []
    for number, segment in enumerate(partition.segments):
        base_offset = segment.name.base_offset or 0
        index = partition.others.get(
            file_names.segment_file_name(base_offset, file_names.OFFSET_INDEX)
        )
        ranges += ranges_of(
            disk,
            segment.origin,
            base_offset,
            None if index is None or index.origin.size > SMALL_FILE_BYTES_MAX else index.origin,
            is_newest=number == len(partition.segments) - 1,
        )
    return ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReplica:
    """What is known of a replica before its log is read: its row of `replicas` without its ends."""

    of_directory: Row
    topic_id: str | None
    segment_offsets: tuple[int, ...]
    checkpoints: Row
    is_future: bool

    def piece(self, ends: RangeEnds) -> TablePiece:
        """Return the row."""
        offsets = self.segment_offsets
        end_offset = ends.end_offset
        if end_offset is None and offsets:
            end_offset = offsets[-1]
        return TablePiece(
            "replicas",
            [
                (
                    *self.of_directory,
                    self.topic_id,
                    ends.first_offset,
                    end_offset,
                    len(offsets),
                    offsets[0] if offsets else None,
                    *self.checkpoints,
                    self.is_future,
                )
            ],
        )


def replica_of(directory: ScannedDirectory, partition: Partition) -> ReadReplica:
    """Return the replica in a partition's directory; checkpoints are not about future ones."""
    key = (partition.name.topic, partition.name.partition)
    is_future = partition.name.state == FUTURE
    return ReadReplica(
        of_directory=partition.origin.of_directory,
        topic_id=partition.topic_id,
        segment_offsets=tuple(each.name.base_offset or 0 for each in partition.segments),
        checkpoints=tuple(
            None if is_future else directory.checkpoints.get(name, {}).get(key)
            for name in (
                file_names.LOG_START_OFFSETS,
                file_names.RECOVERY_POINTS,
                file_names.REPLICATION_OFFSETS,
                file_names.CLEANER_OFFSETS,
            )
        ),
        is_future=is_future,
    )
