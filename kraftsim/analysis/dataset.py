"""The layout of ingested runs: a dataset of Parquet files, partitioned by run and family of events.

    DATASET/_runs/NAME.json                            the manifest of a run
    DATASET/run=NAME/family=partitions/part-00000.parquet

Each file has the columns of its family (`columns.family_schema`), one or more row groups per kind,
and rows in the order of time within a kind; `part-N` follows `part-N-1` in time. So a query on one
kind reads a few columns of a few row groups. A run directory has a dataset of its own, with one
run. Readers take the files from the manifests: a run appears, is replaced, or disappears with its
manifest.
"""

import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from kraftsim.analysis.columns import family_of_kind

MANIFESTS: Final = "_runs"
STAGING: Final = "_staging"
FORMAT: Final = 2
"""The version of the layout; files of another version are read again from the event logs."""
LINES_SHOWN_MAX: Final = 5


class SourceFile(msgspec.Struct, frozen=True, kw_only=True):
    """One event log file as it was when it was read.

    `torn_bytes` of an incomplete last line and `unreadable_lines` are not in the dataset.
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
    """The result of reading the event logs of a run. `parquet` is the directory of the run in its
    dataset.
    """

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


class DataFile(msgspec.Struct, frozen=True, kw_only=True):
    """One Parquet file as a run needs it: its path below the dataset, its size, and the run's rows
    and kinds in it. A compacted file has `file_rows` of several runs.
    """

    path: str
    family: str
    rows: int
    size_bytes: int
    kinds: tuple[str, ...]
    file_rows: int


class RunManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a dataset knows of a run. `facts` is the run's `run.json`."""

    run: str
    ingest: IngestResult
    kinds: dict[str, int]
    files: tuple[DataFile, ...]
    facts: dict[str, object] = {}
    format: int = FORMAT


class NoRun(ValueError):
    """A directory without an ingested run; the message is one line with the path."""


class Dataset:
    """A dataset below a directory."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def directory(self, run: str) -> Path:
        """Return where the files of a run lie that are not compacted."""
        return self.root / f"run={_file_name(run)}"

    def names(self) -> list[str]:
        """Return the names of the runs, sorted."""
        return sorted(manifest.run for manifest in self.manifests())

    def has(self, run: str) -> bool:
        """Return whether a run is in the dataset."""
        return self._manifest_path(run).exists()

    def manifests(self) -> Iterator[RunManifest]:
        """Yield the manifests of all runs, in the order of their files' names."""
        for path in sorted((self.root / MANIFESTS).glob("*.json")):
            yield _decode(path)

    def manifest(self, run: str) -> RunManifest:
        """Return the manifest of a run. Raises NoRun."""
        path = self._manifest_path(run)
        if not path.exists():
            raise NoRun(f"{self.root} has no run {run}: see `kraftsim dataset list {self.root}`")
        return _decode(path)

    def commit(self, manifest: RunManifest) -> None:
        """Make the files of a run visible; they replace those of a former run of that name."""
        path = self._manifest_path(manifest.run)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        unfinished.replace(path)

    def remove(self, run: str) -> None:
        """Remove a run; its compacted files disappear with the next compaction. Raises NoRun."""
        self.manifest(run)
        self._manifest_path(run).unlink()
        shutil.rmtree(self.directory(run), ignore_errors=True)

    def _manifest_path(self, run: str) -> Path:
        return self.root / MANIFESTS / f"{_file_name(run)}.json"


def dataset_of(place: Path | str) -> tuple[Dataset, RunManifest]:
    """Return the dataset and the manifest of a run by the directory of its files.

    Raises NoRun.
    """
    path = Path(place)
    dataset = Dataset(path.parent)
    name = path.name.removeprefix("run=")
    manifest_path = dataset.root / MANIFESTS / f"{name}.json"
    if not path.name.startswith("run=") or not manifest_path.exists():
        raise NoRun(f"{place} is no ingested run: `kraftsim ingest RUN` makes one")
    return dataset, _decode(manifest_path)


def files_by_family(
    manifests: Iterable[RunManifest], kinds: Collection[str] | None = None
) -> Mapping[str, tuple[str, ...]]:
    """Return the paths of the files below a dataset that hold some of the kinds, by family; each
    file once.
    """
    families = None if kinds is None else {family_of_kind(kind) for kind in kinds}
    found: dict[str, dict[str, None]] = {}
    for manifest in manifests:
        for file in manifest.files:
            if families is not None and file.family not in families:
                continue
            if kinds is None or not set(file.kinds).isdisjoint(kinds):
                found.setdefault(file.family, {})[file.path] = None
    return {family: tuple(paths) for family, paths in sorted(found.items())}


def names_to_filter(manifests: Sequence[RunManifest]) -> list[str] | None:
    """Return the names of runs by which rows must be filtered, because a file holds rows of others,
    too; None if none does.
    """
    rows: dict[str, int] = {}
    file_rows: dict[str, int] = {}
    for manifest in manifests:
        for file in manifest.files:
            rows[file.path] = rows.get(file.path, 0) + file.rows
            file_rows[file.path] = file.file_rows
    return None if rows == file_rows else [manifest.run for manifest in manifests]


def _decode(path: Path) -> RunManifest:
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=RunManifest)
    except msgspec.DecodeError as trouble:
        raise NoRun(f"{path} is no manifest of a run: {trouble}") from trouble
    if manifest.format != FORMAT:
        raise NoRun(f"{path} has the layout {manifest.format}, not {FORMAT}: ingest the run again")
    return manifest


def _file_name(run: str) -> str:
    """Return a run's name as a part of a path: without separators, and never '..' or hidden."""
    name = quote(run, safe="-_.+@ ")
    return name.replace(".", "%2E", 1) if name.startswith(".") else name or "%"
