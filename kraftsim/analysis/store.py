"""Reads the events of an ingested run into Arrow: by kind, column and position.

Everything that needs no SQL reads here (the report, exports, witnesses), so that only this module
and those that write know how the files lie.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kraftsim.analysis.columns import POSITION, event_schema, family_schema
from kraftsim.analysis.dataset import DataFile, FileGroup, dataset_of, file_groups
from kraftsim.analysis.places import SETTINGS, Place, Where, one_line, place_of

FOOTERS_KEPT: Final = 256
"""Groups of remote files of which pyarrow keeps the footers: files never change, and each footer is
a request.
"""


def read_events(
    parquet: Where,
    *,
    kinds: Collection[str] | None = None,
    columns: Iterable[str] | None = None,
    positions: Iterable[int] | None = None,
) -> pa.Table:
    """Return events of a run in the order of time; without arguments, all events with all columns.

    `parquet` is the address of the directory of the run in its dataset. `columns` that no event has
    are null. Raises NoRun for another directory.
    """
    dataset, manifest = dataset_of(parquet)
    schema = event_schema()
    names = schema.names if columns is None else list(columns)
    wanted = dict.fromkeys([*names, POSITION])
    where = pc.scalar(True)
    if kinds is not None:
        where &= pc.field("kind").isin(sorted(kinds))
    if positions is not None:
        where &= _at(positions)
    tables = [pa.schema([schema.field(name) for name in wanted]).empty_table()]
    for family, groups in file_groups([manifest], kinds).items():
        own = [name for name in wanted if name in family_schema(family).names]
        for group in groups:
            with one_line(dataset.root):
                tables.append(
                    scan(dataset.root, group.files).to_table(
                        columns=own, filter=where & rows_of(group)
                    )
                )
    table = pa.concat_tables(tables, promote_options="default")
    return table.take(pc.sort_indices(table.column(POSITION))).select(names)


def _at(positions: Iterable[int]) -> pc.Expression:
    """Return the condition for some positions; that for a range skips whole row groups."""
    place = pc.field(POSITION)
    if isinstance(positions, range) and positions.step == 1:
        return (place >= positions.start) & (place < positions.stop)
    return place.isin(sorted(set(positions)))


def rows_of(group: FileGroup) -> pc.Expression:
    """Return the condition for the wanted rows of a group of files."""
    return pc.scalar(True) if group.runs is None else pc.field("run").isin(group.runs)


def scan(root: Where, files: Sequence[DataFile]) -> ds.Dataset:
    """Return files of one family as a dataset of pyarrow."""
    place = place_of(root)
    if place.is_local:
        schema = family_schema(files[0].family)
        return ds.dataset([str(place / file.path) for file in files], schema=schema)
    settings = tuple(os.environ.get(name, "") for name in SETTINGS)
    named = tuple((file.path, file.size_bytes) for file in files)
    return _remote(place, named, files[0].family, settings)


@lru_cache(FOOTERS_KEPT)
def _remote(
    root: Place, files: tuple[tuple[str, int], ...], family: str, settings: tuple[str, ...]
) -> ds.Dataset:
    """Return remote files as a dataset; with the size of a file pyarrow need not request it."""
    path, filesystem = root.arrow()
    form = ds.ParquetFileFormat()
    fragments = [
        form.make_fragment(f"{path}/{file}", filesystem, file_size=size) for file, size in files
    ]
    return ds.FileSystemDataset(fragments, family_schema(family), form, filesystem)


def count_kinds(parquet: Where) -> Mapping[str, int]:
    """Return how many events of each kind there are, by kind. Raises NoRun."""
    _, manifest = dataset_of(parquet)
    return manifest.kinds
