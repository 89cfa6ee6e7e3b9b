"""Converts the event logs of a run into one sorted Parquet file, and reports what the logs lack.

Parsing JSON is the most expensive part of any query on a run, so it is done once. A killed node
leaves a torn last line; a gap in a node's line numbers is worse, because events are missing, and no
verdict about that run may be ok.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kraftsim.analysis.causes import NO_CAUSE, derive_causes
from kraftsim.analysis.columns import (
    CAUSE_POSITION,
    EXTRA,
    LAMPORT,
    POSITION,
    event_schema,
    line_schema,
)
from kraftsim.analysis.reading import LogContent, read_log
from kraftsim.events.catalogue import KINDS

EVENTS_FILE: Final = "events.parquet"
EVENTS_DIRECTORY: Final = "events"
ROW_GROUP_ROWS: Final = 256 * 1024
METADATA_KEY: Final = b"kraftsim.ingest"
ORDER_OF_TIME: Final = ("t_ns", "node", "incarnation", "n")
LINES_SHOWN_MAX: Final = 5
REPEATED_STRINGS: Final = ("run", "node", "kind", "topic", "client_id", "peer", "link", "listener")
"""Columns with few distinct texts: dictionary-encoded while they are sorted."""


class NoEvents(ValueError):
    """A directory without event logs; the message is one line with the path."""


class SourceFile(msgspec.Struct, frozen=True, kw_only=True):
    """One event log file as it was when it was read.

    `torn_bytes` of an incomplete last line and `unreadable_lines` are not in the Parquet file.
    """

    name: str
    size_bytes: int
    modified_ns: int
    torn_bytes: int = 0
    unreadable_lines: int = 0


class LineGap(msgspec.Struct, frozen=True, kw_only=True):
    """Lines that a node wrote, or was about to write, and that are missing; `repeated_count` lines
    occur more than once.
    """

    node: str
    incarnation: int
    first_missing_n: int
    missing_count: int
    repeated_count: int = 0


class IngestResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of reading the event logs of a run."""

    parquet: str
    event_count: int
    node_count: int
    frames_paired: int
    files: tuple[SourceFile, ...]
    gaps: tuple[LineGap, ...] = ()
    unknown_kinds: dict[str, int] = {}

    @property
    def torn_files(self) -> tuple[SourceFile, ...]:
        """The files whose last line is incomplete."""
        return tuple(file for file in self.files if file.torn_bytes)

    def lost_lines(self) -> str:
        """Return in one line what the history is known to lack; '' if it is complete as far as can
        be detected.
        """
        unreadable = sum(file.unreadable_lines for file in self.files)
        missing = sum(gap.missing_count for gap in self.gaps)
        repeated = sum(gap.repeated_count for gap in self.gaps)
        found = (
            (missing, "lines are missing"),
            (unreadable, "lines are unreadable"),
            (repeated, "lines are there more than once"),
        )
        return ", ".join(f"{count} {what}" for count, what in found if count)

    def lines(self) -> list[str]:
        """Return a human-readable summary."""
        lines = [
            (
                f"{self.event_count} events of {self.node_count} nodes from {len(self.files)} "
                f"files -> {self.parquet}"
            )
        ]
        lines += [
            f"  {file.name}: a torn last line of {file.torn_bytes} bytes was left out"
            for file in self.torn_files[:LINES_SHOWN_MAX]
        ]
        lines += [
            f"  {file.name}: {file.unreadable_lines} lines are no events"
            for file in self.files
            if file.unreadable_lines
        ][:LINES_SHOWN_MAX]
        for gap in self.gaps[:LINES_SHOWN_MAX]:
            what = (
                f"{gap.missing_count} lines are missing from n={gap.first_missing_n} on, "
                f"{gap.repeated_count} are repeated"
            )
            lines.append(f"  {gap.node}.{gap.incarnation}: {what}")
        lines += [
            f"  {count} events of the unknown kind {kind} were kept"
            for kind, count in sorted(self.unknown_kinds.items())
        ][:LINES_SHOWN_MAX]
        return lines


def ingest_run(run: Path) -> IngestResult:
    """Read all *.jsonl below RUN/events and write RUN/events.parquet.

    Raises NoEvents, or OSError if writing fails.
    """
    paths = _event_logs(run)
    if not paths:
        raise NoEvents(
            f"{run} holds no event log: there is no *.jsonl below {run / EVENTS_DIRECTORY}"
        )
    contents = [read_log(path) for path in paths]
    events = _sorted([content.events for content in contents])
    causes = derive_causes(events)
    positions = pa.array(np.arange(events.num_rows, dtype=np.int64))
    events = events.append_column(POSITION, positions)
    events = events.append_column(
        CAUSE_POSITION, pa.array(causes.cause, mask=causes.cause == NO_CAUSE)
    )
    events = events.append_column(LAMPORT, pa.array(causes.lamport))
    result = IngestResult(
        parquet=str(run / EVENTS_FILE),
        event_count=events.num_rows,
        node_count=len(events.column("node").unique()),
        frames_paired=causes.frames_paired,
        files=tuple(
            _source(run, path, content) for path, content in zip(paths, contents, strict=True)
        ),
        gaps=_gaps(events),
        unknown_kinds=_unknown_kinds(events),
    )
    _write(events, result, run / EVENTS_FILE)
    return result


def ingested(run: Path) -> IngestResult:
    """Return the facts of RUN/events.parquet, reading the logs first if they have changed or were
    never read.

    Raises NoEvents.
    """
    parquet = run / EVENTS_FILE
    if parquet.exists():
        metadata = pq.read_schema(parquet).metadata or {}
        result = (
            msgspec.json.decode(metadata[METADATA_KEY], type=IngestResult)
            if METADATA_KEY in metadata
            else None
        )
        paths = _event_logs(run)
        if result is not None and (
            not paths
            or [_source(run, path) for path in paths] == [_as_found(file) for file in result.files]
        ):
            return msgspec.structs.replace(result, parquet=str(parquet))
    return ingest_run(run)


def _event_logs(run: Path) -> list[Path]:
    return sorted((run / EVENTS_DIRECTORY).rglob("*.jsonl"))


def _source(run: Path, path: Path, content: LogContent | None = None) -> SourceFile:
    status = path.stat()
    return SourceFile(
        name=path.relative_to(run).as_posix(),
        size_bytes=status.st_size,
        modified_ns=status.st_mtime_ns,
        torn_bytes=content.torn_bytes if content else 0,
        unreadable_lines=content.unreadable_lines if content else 0,
    )


def _as_found(file: SourceFile) -> SourceFile:
    return msgspec.structs.replace(file, torn_bytes=0, unreadable_lines=0)


def _sorted(tables: Sequence[pa.Table]) -> pa.Table:
    """Return all events in the order of time; equal times are ordered by node and line, so that the
    order is the same on every machine.
    """
    events = pa.concat_tables(tables, promote_options="default")
    for name in REPEATED_STRINGS:
        if name not in events.column_names:
            continue
        index = events.schema.get_field_index(name)
        events = events.set_column(index, name, events.column(name).dictionary_encode())
    events = events.unify_dictionaries()
    keys = pa.table({name: _sort_key(events.column(name)) for name in ORDER_OF_TIME})
    events = events.take(
        pc.sort_indices(keys, [(name, "ascending") for name in ORDER_OF_TIME])
    ).combine_chunks()
    for field in line_schema():
        if field.name not in events.column_names:
            events = events.append_column(field, pa.nulls(events.num_rows, field.type))
    return events


def _sort_key(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def _gaps(events: pa.Table) -> tuple[LineGap, ...]:
    """Return one gap per node and incarnation whose line numbers are not 0, 1, 2, ... up to the
    highest one.
    """
    lines = pa.table(
        {
            "node": events.column("node").cast(pa.string()),
            "incarnation": events.column("incarnation"),
            "n": events.column("n"),
        }
    )
    grouped = (
        lines.group_by(["node", "incarnation"])
        .aggregate([("n", "max"), ("n", "count"), ("n", "count_distinct")])
        .to_pylist()
    )
    gaps = []
    for row in sorted(grouped, key=lambda row: (row["node"], row["incarnation"])):
        missing = row["n_max"] + 1 - row["n_count_distinct"]
        repeated = row["n_count"] - row["n_count_distinct"]
        if missing or repeated:
            own = lines.filter(
                pc.and_(
                    pc.equal(lines["node"], row["node"]),
                    pc.equal(lines["incarnation"], row["incarnation"]),
                )
            )
            gaps.append(
                LineGap(
                    node=row["node"],
                    incarnation=row["incarnation"],
                    first_missing_n=_first_missing(
                        np.unique(np.asarray(own["n"].combine_chunks(), np.int64))
                    ),
                    missing_count=missing,
                    repeated_count=repeated,
                )
            )
    return tuple(gaps)


def _first_missing(seen: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> int:
    differs = np.flatnonzero(seen != np.arange(len(seen)))
    return int(differs[0]) if len(differs) else len(seen)


def _unknown_kinds(events: pa.Table) -> dict[str, int]:
    counts = Counter(
        {
            row["values"]: row["counts"]
            for row in pc.value_counts(events.column("kind").cast(pa.string())).to_pylist()
        }
    )
    return {kind: count for kind, count in sorted(counts.items()) if kind not in KINDS}


def _write(events: pa.Table, result: IngestResult, path: Path) -> None:
    """Write the file under another name first, so that a reader never sees a partial file."""
    schema = event_schema()
    assert set(schema.names) == set(events.column_names) and EXTRA in schema.names, (
        "ingest fills every column"
    )
    metadata = {METADATA_KEY: msgspec.json.encode(result)}
    events = events.select(schema.names).cast(schema).replace_schema_metadata(metadata)
    unfinished = path.with_suffix(".unfinished")
    pq.write_table(events, unfinished, compression="zstd", row_group_size=ROW_GROUP_ROWS)
    unfinished.replace(path)
