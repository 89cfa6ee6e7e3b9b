"""Reads the events of an ingested run into Arrow: by kind, column and position.

Everything that needs no SQL reads here (the report, exports, witnesses), so that only this module
and those that write know how the files lie.
"""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kraftsim.analysis.columns import POSITION, event_schema, family_schema
from kraftsim.analysis.dataset import dataset_of, files_by_family, names_to_filter


def read_events(
    parquet: Path | str,
    *,
    kinds: Collection[str] | None = None,
    columns: Iterable[str] | None = None,
    positions: Iterable[int] | None = None,
) -> pa.Table:
    """Return events of a run in the order of time; without arguments, all events with all columns.

    `parquet` is the directory of the run in its dataset. `columns` that no event has are null.
    Raises NoRun for another directory.
    """
    dataset, manifest = dataset_of(parquet)
    schema = event_schema()
    names = schema.names if columns is None else list(columns)
    wanted = dict.fromkeys([*names, POSITION])
    where = None
    if names_to_filter([manifest]) is not None:
        where = pc.field("run") == manifest.run
    if kinds is not None:
        some = pc.field("kind").isin(sorted(kinds))
        where = some if where is None else where & some
    if positions is not None:
        at = _at(positions)
        where = at if where is None else where & at
    tables = [pa.schema([schema.field(name) for name in wanted]).empty_table()]
    for family, paths in files_by_family([manifest], kinds).items():
        own = family_schema(family)
        found = ds.dataset([str(dataset.root / path) for path in paths], schema=own).to_table(
            columns=[name for name in wanted if name in own.names], filter=where
        )
        tables.append(found)
    table = pa.concat_tables(tables, promote_options="default")
    return table.take(pc.sort_indices(table.column(POSITION))).select(names)


def _at(positions: Iterable[int]) -> pc.Expression:
    """Return the condition for some positions; that for a range skips whole row groups."""
    place = pc.field(POSITION)
    if isinstance(positions, range) and positions.step == 1:
        return (place >= positions.start) & (place < positions.stop)
    return place.isin(sorted(set(positions)))


def count_kinds(parquet: Path | str) -> Mapping[str, int]:
    """Return how many events of each kind there are, by kind. Raises NoRun."""
    _, manifest = dataset_of(parquet)
    return manifest.kinds
