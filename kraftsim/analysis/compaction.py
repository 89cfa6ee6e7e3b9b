"""Joins the small files of many runs into a few large ones, and removes runs.

A campaign leaves a dozen files of some kilobytes per run; a query over a thousand runs would spend
its time opening them. A compacted file holds rows of several runs, sorted by kind, run and time.
The files that are replaced are deleted once all manifests name the new ones.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from kraftsim.analysis.assembly import ROW_GROUP_ROWS
from kraftsim.analysis.columns import POSITION, family_schema
from kraftsim.analysis.dataset import MANIFESTS, STAGING, DataFile, Dataset, RunManifest

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
    before = _sizes(dataset, manifests)
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
    number = 1 + max((_number(path) for path in family_of), default=-1)
    for family, paths in sorted(joined.items()):
        for batch in _batches(sorted(paths), owners):
            if len(batch) == 1 and not _has_removed_rows(batch[0], owners[batch[0]]):
                continue
            runs = sorted({each.run for path in batch for each in owners[path]})
            for run, file in _join(dataset, family, batch, runs, number):
                replaced[run].append(file)
            gone.update(batch)
            number += 1
    for manifest in manifests:
        kept = tuple(file for file in manifest.files if file.path not in gone)
        files = (*kept, *replaced[manifest.run])
        dataset.commit(msgspec.structs.replace(manifest, files=files))
    _sweep(dataset)
    after = _sizes(dataset, dataset.manifests())
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
    ages = sorted(
        ((dataset.root / MANIFESTS / path.name).stat().st_mtime, path)
        for path in (dataset.root / MANIFESTS).glob("*.json")
    )
    old = [path for age, path in ages if before is not None and age < before.timestamp()]
    if keep is not None:
        old += [path for _, path in ages[: max(0, len(ages) - keep)] if path not in old]
    names = [msgspec.json.decode(path.read_bytes(), type=RunManifest).run for path in old]
    for name in names:
        dataset.remove(name)
    _sweep(dataset)
    return sorted(names)


def _sizes(dataset: Dataset, manifests: Iterable[RunManifest]) -> dict[str, int]:
    return {
        file.path: (dataset.root / file.path).stat().st_size
        for manifest in manifests
        for file in manifest.files
    }


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
    dataset: Dataset, family: str, paths: Sequence[str], runs: Sequence[str], number: int
) -> list[tuple[str, DataFile]]:
    schema = family_schema(family)
    source = ds.dataset([str(dataset.root / path) for path in paths], schema=schema)
    table = source.to_table(filter=pc.field("run").isin(list(runs)))
    table = table.sort_by([(name, "ascending") for name in ("kind", "run", POSITION)])
    path = f"{COMPACTED}/family={family}/part-{number:05}.parquet"
    target = dataset.root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".unfinished")
    kinds = table.column("kind").unique().to_pylist()
    with pq.ParquetWriter(unfinished, schema, compression="zstd") as writer:
        for kind in kinds:
            own = table.filter(pc.equal(table.column("kind"), kind))
            writer.write_table(own, row_group_size=ROW_GROUP_ROWS)
    unfinished.replace(target)
    counted = table.group_by(["run", "kind"]).aggregate([([], "count_all")]).to_pylist()
    rows: dict[str, int] = {}
    kinds_of: dict[str, list[str]] = {}
    for each in counted:
        rows[each["run"]] = rows.get(each["run"], 0) + each["count_all"]
        kinds_of.setdefault(each["run"], []).append(each["kind"])
    size_bytes = target.stat().st_size
    return [
        (
            run,
            DataFile(
                path=path,
                family=family,
                rows=rows[run],
                size_bytes=size_bytes,
                kinds=tuple(sorted(kinds_of[run])),
                file_rows=table.num_rows,
            ),
        )
        for run in sorted(rows)
    ]


def _number(path: str) -> int:
    stem = Path(path).stem.rpartition("-")[2]
    return int(stem) if path.startswith(COMPACTED) and stem.isdecimal() else -1


def _sweep(dataset: Dataset) -> None:
    """Delete the files that no manifest names."""
    named = {file.path for manifest in dataset.manifests() for file in manifest.files}
    for path in sorted(dataset.root.rglob("*.parquet")):
        relative = path.relative_to(dataset.root).as_posix()
        if relative not in named and not relative.startswith(STAGING):
            path.unlink()
    for directory in sorted(dataset.root.rglob("*"), reverse=True):
        if directory.is_dir() and not any(directory.iterdir()):
            directory.rmdir()
