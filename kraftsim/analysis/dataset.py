"""The layout of ingested runs: a dataset of Parquet files, partitioned by run and family of events.

    DATASET/_runs/NAME.json                            the manifest of a run
    DATASET/run=NAME/family=partitions/part-00000-1f0c9a3e.parquet

Each file has the columns of its family (`columns.family_schema`), one or more row groups per kind,
and rows in the order of time within a kind; `part-N` follows `part-N-1` in time. So a query on one
kind reads a few columns of a few row groups. A run directory has a dataset of its own, with one
run.

Readers take the files from the manifests: a run appears, is replaced, or disappears with its
manifest. No file is written twice: each ingest draws a name of its own, and its manifest, which is
written last, names the files. So a reader has all files of one ingest, also on an object store,
where nothing can be renamed. The files that a run had before stay until it is replaced once more.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from kraftsim.analysis.columns import family_of_kind
from kraftsim.analysis.places import FoundFile, Place, Where, place_of

MANIFESTS: Final = "_runs"
RUN_PREFIX: Final = "run="
STAGING: Final = "_staging"
DATA_SUFFIX: Final = ".parquet"
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
    """The result of reading the event logs of a run. `parquet` is the address of the directory of
    the run in its dataset.
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

    def __init__(self, root: Where) -> None:
        self.root = place_of(root)

    def directory(self, run: str) -> Place:
        """Return where the files of a run lie that are not compacted."""
        return self.root / f"{RUN_PREFIX}{_file_name(run)}"

    def names(self) -> list[str]:
        """Return the names of the runs, sorted."""
        return sorted(manifest.run for manifest in self.manifests())

    def has(self, run: str) -> bool:
        """Return whether a run is in the dataset."""
        return self._manifest_place(run).is_file()

    def manifests(self) -> Iterator[RunManifest]:
        """Yield the manifests of all runs, in the order of their files' names."""
        places = [self.root / MANIFESTS / each.path for each in self.manifest_files()]
        for manifest in self.root.many(_decode_if_there, places):
            if manifest is not None:
                yield manifest

    def manifest_files(self) -> list[FoundFile]:
        """Return the files of the manifests, by their paths below `_runs`."""
        return (self.root / MANIFESTS).files(".json", is_deep=False)

    def manifest(self, run: str) -> RunManifest:
        """Return the manifest of a run. Raises NoRun."""
        try:
            return _decode(self._manifest_place(run))
        except FileNotFoundError:
            raise NoRun(
                f"{self.root} has no run {run}: see `kraftsim dataset list {self.root}`"
            ) from None

    def commit(self, manifest: RunManifest) -> None:
        """Make the files of a run visible, instead of those of a former manifest."""
        content = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
        self._manifest_place(manifest.run).publish(content)

    def replace(self, manifest: RunManifest) -> None:
        """Commit a run that was ingested. Then delete what is in its directory, but for its files
        and those of the manifest that was replaced: a reader may have that one.
        """
        try:
            former = self.manifest(manifest.run).files
        except NoRun:
            former = ()
        self.commit(manifest)
        directory = self.directory(manifest.run)
        prefix = f"{directory.name}/"
        needed = {file.path for file in (*manifest.files, *former)}
        directory.delete(
            each.path for each in directory.files(DATA_SUFFIX) if prefix + each.path not in needed
        )

    def remove(self, run: str) -> None:
        """Remove a run; its compacted files disappear with the next compaction. Raises NoRun."""
        self.manifest(run)
        self._manifest_place(run).parent.delete([self._manifest_place(run).name])
        self.directory(run).delete_tree()

    def _manifest_place(self, run: str) -> Place:
        return self.root / MANIFESTS / f"{_file_name(run)}.json"


def dataset_of(place: Where) -> tuple[Dataset, RunManifest]:
    """Return the dataset and the manifest of a run by the directory of its files.

    Raises NoRun.
    """
    directory = place_of(place)
    dataset = Dataset(directory.parent)
    name = directory.name.removeprefix(RUN_PREFIX)
    try:
        if directory.name.startswith(RUN_PREFIX):
            return dataset, _decode(dataset.root / MANIFESTS / f"{name}.json")
    except (FileNotFoundError, NotADirectoryError):
        pass
    raise NoRun(f"{place} is no ingested run: `kraftsim ingest RUN` makes one")


def fresh_name() -> str:
    """Return what distinguishes the names of files that are written now from all others."""
    return os.urandom(4).hex()


class FileGroup(NamedTuple):
    """Files of one family of which the same rows are wanted: those of some runs, or all."""

    files: tuple[DataFile, ...]
    runs: tuple[str, ...] | None


def file_groups(
    manifests: Sequence[RunManifest], kinds: Collection[str] | None = None
) -> Mapping[str, tuple[FileGroup, ...]]:
    """Return the files that hold some of the kinds, by family; each file is in one group.

    A compacted file also has rows of runs that are not wanted, and of runs that have other files
    since: only the manifests say whose rows count.
    """
    families = None if kinds is None else {family_of_kind(kind) for kind in kinds}
    owners: dict[str, dict[str, DataFile]] = {}
    for manifest in manifests:
        for file in manifest.files:
            if families is None or file.family in families:
                owners.setdefault(file.path, {})[manifest.run] = file
    found: dict[str, dict[tuple[str, ...] | None, list[DataFile]]] = {}
    for own in owners.values():
        if kinds is not None and all(set(kinds).isdisjoint(file.kinds) for file in own.values()):
            continue
        file = next(iter(own.values()))
        is_whole = sum(each.rows for each in own.values()) == file.file_rows
        runs = None if is_whole else tuple(own)
        found.setdefault(file.family, {}).setdefault(runs, []).append(file)
    return {
        family: tuple(FileGroup(tuple(files), runs) for runs, files in groups.items())
        for family, groups in sorted(found.items())
    }


def _decode_if_there(place: Place) -> RunManifest | None:
    """Return a manifest that was listed; None if its run was removed meanwhile."""
    try:
        return _decode(place)
    except FileNotFoundError:
        return None


def _decode(place: Place) -> RunManifest:
    try:
        manifest = msgspec.json.decode(place.read(), type=RunManifest)
    except msgspec.DecodeError as trouble:
        raise NoRun(f"{place} is no manifest of a run: {trouble}") from trouble
    if manifest.format != FORMAT:
        raise NoRun(f"{place} has the layout {manifest.format}, not {FORMAT}: ingest the run again")
    return manifest


def _file_name(run: str) -> str:
    """Return a run's name as a part of a path: without separators, and never '..' or hidden."""
    name = quote(run, safe="-_.+@ ")
    return name.replace(".", "%2E", 1) if name.startswith(".") else name or "%"
