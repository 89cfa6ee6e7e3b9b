"""Selects the reader of a file by its name; for a directory, all known files in it.

Source: kafka.tools.DumpLogSegments (main), LogFileUtils, Snapshots.
"""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from kraftsim.inspect.dump.indexes import (
    Scrutiny,
    offset_index_rows,
    time_index_rows,
    transaction_index_rows,
)
from kraftsim.inspect.dump.payloads import TOPICS, Decoder
from kraftsim.inspect.dump.rows import DumpRow, wrong
from kraftsim.inspect.dump.segments import DumpedSegments, segment_rows
from kraftsim.inspect.dump.small_files import READERS, producer_snapshot_rows, small_file_rows
from protocol.records.record import Bytes
from protocol.storage.file_names import (
    BOOTSTRAP_CHECKPOINT,
    LOG,
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    parse_metadata_snapshot_name,
    parse_partition_directory_name,
    parse_segment_file_name,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpSettings:
    """What is printed. `decoder` None: that of the topic in whose directory the file is."""

    segment: DumpedSegments = field(default_factory=DumpedSegments)
    decoder: Decoder | None = None
    scrutiny: Scrutiny = Scrutiny.SHOW


def is_known(file: Path) -> bool:
    """Return whether a file is one of those that can be dumped."""
    return (
        file.name in READERS
        or file.name == BOOTSTRAP_CHECKPOINT
        or parse_segment_file_name(file.name) is not None
        or _is_snapshot(file)
    )


def files_below(place: Path) -> list[Path]:
    """Return the file itself, or all known files below a directory."""
    if not place.is_dir():
        return [place]
    return sorted(file for file in place.rglob("*") if file.is_file() and is_known(file))


def decoder_of(file: Path) -> Decoder:
    """Return the record type of a file, by its path."""
    if file.name == BOOTSTRAP_CHECKPOINT or _is_snapshot(file):
        return Decoder.CLUSTER_METADATA
    partition = parse_partition_directory_name(file.absolute().parent.name)
    return TOPICS.get(partition.topic, Decoder.TEXT) if partition is not None else Decoder.TEXT


def rows_of(file: Path, settings: DumpSettings) -> Iterator[DumpRow]:
    """Yield the content of a file. Raises OSError."""
    reader = READERS.get(file.name)
    if reader is not None:
        yield from small_file_rows(reader, file.read_bytes())
        return
    segment = parse_segment_file_name(file.name)
    if segment is None and file.name != BOOTSTRAP_CHECKPOINT and not _is_snapshot(file):
        yield wrong(f"Ignoring unknown file {file}")
        return
    suffix = LOG if segment is None else segment.suffix
    if suffix == LOG:
        decoder = settings.decoder or decoder_of(file)
        with mapped(file) as content:
            assert content is not None, "the file is there"
            yield from segment_rows(file, content, replace(settings.segment, decoder=decoder))
        return
    assert segment is not None, "a snapshot of metadata was dealt with"
    yield from _beside_segment(file, suffix, segment.offset, settings.scrutiny)


def _beside_segment(
    file: Path, suffix: str, base_offset: int, scrutiny: Scrutiny
) -> Iterator[DumpRow]:
    """Yield the content of a file that belongs to a segment."""
    index = file.read_bytes()
    if suffix == PRODUCER_SNAPSHOT:
        yield from small_file_rows(producer_snapshot_rows, index)
    elif suffix == TRANSACTION_INDEX:
        yield from transaction_index_rows(index)
    else:
        with mapped(file.with_suffix(LOG)) as log:
            if log is None and scrutiny is not Scrutiny.SANITY:
                yield wrong(
                    f"{file.with_suffix(LOG)} is not there: the index cannot be held against it"
                )
            if suffix == OFFSET_INDEX:
                yield from offset_index_rows(file, base_offset, index, log, scrutiny)
            else:
                assert suffix == TIME_INDEX, f"{suffix} belongs to a segment"
                offsets = file.with_suffix(OFFSET_INDEX)
                yield from time_index_rows(
                    file,
                    base_offset,
                    index,
                    offsets.read_bytes() if offsets.exists() else None,
                    log,
                    scrutiny,
                )


@contextmanager
def mapped(file: Path) -> Iterator[Bytes | None]:
    """Map a file into memory, so that a large segment is read on demand; None if it does not
    exist.
    """
    try:
        # SIM115: only `open` may fail here; closed by the `with` below
        opened = open(file, "rb")  # noqa: SIM115
    except FileNotFoundError:
        yield None
        return
    with opened:
        if file.stat().st_size == 0:
            yield b""
            return
        with (
            mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content,
            memoryview(content) as view,
        ):
            yield view


def _is_snapshot(file: Path) -> bool:
    return parse_metadata_snapshot_name(file.name) is not None
