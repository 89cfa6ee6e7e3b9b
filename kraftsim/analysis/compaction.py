"""Joins the small files of many runs into a few large ones, and removes runs.

A campaign leaves a dozen files of some kilobytes per run; a query over a thousand runs would spend
its time opening them. A compacted file holds rows of several runs, sorted by kind, run and time.
The files that are replaced are deleted once all manifests name the new ones. If it breaks off
before, some manifests name the new files and some the old ones: each run has its rows once, and
the next compaction goes on.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kraftsim.analysis.assembly import write_parquet
from kraftsim.analysis.columns import POSITION, family_schema
from kraftsim.analysis.dataset import (
    DATA_SUFFIX,
    MANIFESTS,
    STAGING,
    DataFile,
    Dataset,
    RunManifest,
    file_groups,
    fresh_name,
)
from kraftsim.analysis.places import one_line
from kraftsim.analysis.store import rows_of, scan

COMPACTED: Final = "compacted"
SMALL_BYTES_MAX: Final = 32 * 1024 * 1024
"""Files below this size are joined."""
ROWS_MAX: Final = 1 << 21
"""The number of rows of a compacted file, about; so many are in memory at a time."""


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a compaction."""

    runs: int
    files_before: int
    files_after: int
    size_bytes_before: int
    size_bytes_after: int

    def lines(self) -> list[str]:
        """Return a human-readable summary."""
        return [
            f"{self.runs} runs: {self.files_before} files of {self.size_bytes_before:,} bytes -> "
            f"{self.files_after} files of {self.size_bytes_after:,} bytes"
        ]


def compact(dataset: Dataset) -> Compaction:
    """Join the small files of all runs. Nothing may write to the dataset meanwhile."""
    manifests = list(dataset.manifests())
    before = _sizes(manifests)
    owners: dict[str, list[RunManifest]] = {}
    family_of: dict[str, str] = {}
    for manifest in manifests:
        for file in manifest.files:
            owners.setdefault(file.path, []).append(manifest)
            family_of[file.path] = file.family
    joined: dict[str, list[str]] = {}
    for path, family in family_of.items():
        if before[path] < SMALL_BYTES_MAX or _has_removed_rows(path, owners[path]):
            joined.setdefault(family, []).append(path)
    replaced: dict[str, list[DataFile]] = {manifest.run: [] for manifest in manifests}
    gone: set[str] = set()
    number, name = 0, fresh_name()
    for family, paths in sorted(joined.items()):
        for batch in _batches(sorted(paths), owners):
            if len(batch) == 1 and not _has_removed_rows(batch[0], owners[batch[0]]):
                continue
            path = f"{COMPACTED}/family={family}/part-{number:05}-{name}{DATA_SUFFIX}"
            for run, file in _join(dataset, manifests, family, batch, path):
                replaced[run].append(file)
            gone.update(batch)
            number += 1
    for manifest in manifests:
        kept = tuple(file for file in manifest.files if file.path not in gone)
        files = (*kept, *replaced[manifest.run])
        if files != manifest.files:
            dataset.commit(msgspec.structs.replace(manifest, files=files))
    _sweep(dataset)
    after = _sizes(dataset.manifests())
    return Compaction(
        runs=len(manifests),
        files_before=len(before),
        files_after=len(after),
        size_bytes_before=sum(before.values()),
        size_bytes_after=sum(after.values()),
    )


def expire(
    dataset: Dataset, *, keep: int | None = None, before: datetime | None = None
) -> list[str]:
    """Remove all runs but the newest `keep`, or those that were ingested before a time, and return
    their names.
    """
    ages = sorted((file.modified_ns, file.path) for file in dataset.manifest_files())
    old = [path for age, path in ages if before is not None and age < before.timestamp() * 1e9]
    if keep is not None:
        old += [path for _, path in ages[: max(0, len(ages) - keep)] if path not in old]
    places = [dataset.root / MANIFESTS / path for path in old]
    names = [msgspec.json.decode(place.read(), type=RunManifest).run for place in places]
    for name in names:
        dataset.remove(name)
    _sweep(dataset)
    return sorted(names)


def _sizes(manifests: Iterable[RunManifest]) -> dict[str, int]:
    return {file.path: file.size_bytes for manifest in manifests for file in manifest.files}


def _has_removed_rows(path: str, owners: Sequence[RunManifest]) -> bool:
    """Return whether a file holds rows of runs that were removed."""
    own = [file for manifest in owners for file in manifest.files if file.path == path]
    return sum(file.rows for file in own) < own[0].file_rows


def _batches(paths: Sequence[str], owners: dict[str, list[RunManifest]]) -> Iterable[list[str]]:
    batch: list[str] = []
    rows = 0
    for path in paths:
        own = sum(
            file.rows for manifest in owners[path] for file in manifest.files if file.path == path
        )
        if batch and rows + own > ROWS_MAX:
            yield batch
            batch, rows = [], 0
        batch.append(path)
        rows += own
    if batch:
        yield batch


def _join(
    dataset: Dataset,
    manifests: Sequence[RunManifest],
    family: str,
    paths: Sequence[str],
    to: str,
) -> list[tuple[str, DataFile]]:
    tables = []
    for group in file_groups(_only(manifests, paths))[family]:
        with one_line(dataset.root):
            tables.append(scan(dataset.root, group.files).to_table(filter=rows_of(group)))
    table = pa.concat_tables(tables).sort_by(
        [(name, "ascending") for name in ("kind", "run", POSITION)]
    )
    kinds = table.column("kind").unique().to_pylist()
    with write_parquet(dataset.root / to, family_schema(family)) as file:
        for kind in kinds:
            file.write(table.filter(pc.equal(table.column("kind"), kind)))
    counted = table.group_by(["run", "kind"]).aggregate([([], "count_all")]).to_pylist()
    rows: dict[str, int] = {}
    kinds_of: dict[str, list[str]] = {}
    for each in counted:
        rows[each["run"]] = rows.get(each["run"], 0) + each["count_all"]
        kinds_of.setdefault(each["run"], []).append(each["kind"])
    return [
        (
            run,
            DataFile(
                path=to,
                family=family,
                rows=rows[run],
                size_bytes=file.size_bytes,
                kinds=tuple(sorted(kinds_of[run])),
                file_rows=table.num_rows,
            ),
        )
        for run in sorted(rows)
    ]


def _only(manifests: Iterable[RunManifest], paths: Iterable[str]) -> list[RunManifest]:
    """Return the manifests with these files only."""
    wanted = set(paths)
    return [
        msgspec.structs.replace(
            manifest, files=tuple(file for file in manifest.files if file.path in wanted)
        )
        for manifest in manifests
    ]


def _sweep(dataset: Dataset) -> None:
    """Delete the files that no manifest names."""
    named = {file.path for manifest in dataset.manifests() for file in manifest.files}
    dataset.root.delete(
        file.path for file in dataset.root.files(DATA_SUFFIX) if file.path not in named
    )
    (dataset.root / STAGING).delete_tree()
