"""The verbs on datasets of runs: a query in SQL, and the care of a dataset."""

import csv
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftsim.cli.failure import Failure, fail
from kraftsim.cli.options import PLACE, json_option, print_lines, write_json

if TYPE_CHECKING:
    import pyarrow as pa

    from kraftsim.analysis.places import Place

FORMATS = ("table", "csv", "json")
ROWS_SHOWN = 100


@click.command(
    epilog="""\b
Examples:
  kraftsim sql "SELECT kind, count(*) FROM events GROUP BY kind ORDER BY 2 DESC" runs/seven
  kraftsim sql "SELECT * FROM record_acknowledged WHERE offset > 10" runs/seven --format csv
  kraftsim sql "SELECT fault, sum(effective) FROM faults GROUP BY fault" runs/campaign
  kraftsim sql --tables runs/seven"""
)
@click.argument("words", nargs=-1, required=True, metavar="QUERY PLACE")
@click.option("--tables", is_flag=True, help="List the tables of PLACE and their columns instead.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="How the result is printed.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=ROWS_SHOWN,
    show_default=True,
    help="Number of rows that a table shows; csv and json have all.",
)
def sql(words: tuple[str, ...], tables: bool, form: str, limit: int) -> None:
    """Query the events of a run, of a dataset, or the tables of a campaign.

    PLACE is a run, a dataset of `kraftsim ingest --dataset`, or the output of `kraftsim sweep
    --spark MASTER --out DIR`, also by an address such as s3a://bucket/runs. There is a table for
    each kind of event, called as the kind in snake_case, and `events` with all of them; a campaign
    has `seeds`, `faults`, `verdicts`, `steps` and `exercised`, too. The SQL is that of DuckDB.
    """
    from kraftsim.analysis.access import open_any

    query, place = _query_and_place(words, tables)
    try:
        opened = open_any(place)
        if tables:
            for name in opened.names:
                click.echo(f"{name}({', '.join(opened.sql(f'FROM {name} LIMIT 0').column_names)})")
            return
        result = opened.sql(query)
    except (ValueError, OSError) as trouble:
        fail(trouble)
    _print(result, form, limit)


def _query_and_place(words: tuple[str, ...], tables: bool) -> "tuple[str, Place]":
    if len(words) != (1 if tables else 2):
        raise Failure(
            "expected --tables PLACE"
            if tables
            else "expected a query in quotes, and a place: "
            'kraftsim sql "SELECT count(*) FROM events" runs/seven'
        )
    from kraftsim.analysis.places import place_of

    try:
        place = place_of(words[-1])
        is_there = place.is_directory()
    except OSError as trouble:
        fail(trouble)
    if not is_there:
        raise Failure(f"{place} is no directory: name a run, a dataset or a campaign")
    return words[0], place


def _print(result: "pa.Table", form: str, limit: int) -> None:
    if form == "json":
        for row in result.to_pylist():
            click.echo(json.dumps(row, default=str))
        return
    if form == "csv":
        writer = csv.writer(sys.stdout)
        writer.writerow(result.column_names)
        for batch in result.to_batches():
            writer.writerows(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*result.column_names)
    for row in result.slice(0, limit).to_pylist():
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    Console(markup=False).print(table)
    if result.num_rows > limit:
        click.echo(f"{limit} of {result.num_rows:,} rows; --limit shows more, --format csv all")


@click.group(
    epilog="""\b
Examples:
  kraftsim dataset list runs/all
  kraftsim dataset compact runs/all
  kraftsim dataset expire runs/all --keep 1000
  kraftsim dataset remove runs/all seven"""
)
def dataset() -> None:
    """Look after a dataset of runs: list, compact, remove and expire."""


@dataset.command(name="list")
@click.argument("place", type=PLACE, metavar="DATASET")
@json_option
def list_runs(place: "Place", json_file: Path | None) -> None:
    """List the runs of a dataset."""
    from kraftsim.analysis.dataset import Dataset

    try:
        manifests = list(Dataset(place).manifests())
    except (ValueError, OSError) as trouble:
        fail(trouble)
    for each in manifests:
        lost = each.ingest.lost_lines()
        click.echo(
            f"{each.run:<48} {each.ingest.event_count:>12,} events  {len(each.files):>4} files"
            + (f"  ({lost})" if lost else "")
        )
    if not manifests:
        click.echo("no runs: `kraftsim ingest RUN... --dataset DATASET` adds some")
    write_json(json_file, manifests)


@dataset.command()
@click.argument("place", type=PLACE, metavar="DATASET")
@json_option
def compact(place: "Place", json_file: Path | None) -> None:
    """Join the small files of many runs into a few large ones.

    Nothing may write to the dataset meanwhile. Also drops the rows of runs that were removed.
    """
    from kraftsim.analysis.compaction import compact as join
    from kraftsim.analysis.dataset import Dataset

    try:
        done = join(Dataset(place))
    except (ValueError, OSError) as trouble:
        fail(trouble)
    print_lines(done)
    write_json(json_file, done)


@dataset.command()
@click.argument("place", type=PLACE, metavar="DATASET")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
def remove(place: "Place", runs: tuple[str, ...]) -> None:
    """Remove runs from a dataset; the directories of the runs themselves stay."""
    from kraftsim.analysis.dataset import Dataset

    found = Dataset(place)
    try:
        for run in runs:
            found.manifest(run)
        for run in runs:
            found.remove(run)
    except (ValueError, OSError) as trouble:
        fail(trouble)
    click.echo(f"removed: {', '.join(runs)}")


@dataset.command()
@click.argument("place", type=PLACE, metavar="DATASET")
@click.option(
    "--keep", type=click.IntRange(min=0), default=None, help="Keep so many, the newest ones."
)
@click.option(
    "--older-than",
    type=click.FloatRange(min=0),
    default=None,
    metavar="DAYS",
    help="Remove runs that were ingested more than so many days ago.",
)
def expire(place: "Place", keep: int | None, older_than: float | None) -> None:
    """Remove old runs from a dataset."""
    from kraftsim.analysis.compaction import expire as remove_old
    from kraftsim.analysis.dataset import Dataset

    if keep is None and older_than is None:
        raise Failure("say which runs are old: --keep NUMBER or --older-than DAYS")
    now = datetime.now(UTC)
    before = None if older_than is None else now - timedelta(days=older_than)
    try:
        gone = remove_old(Dataset(place), keep=keep, before=before)
    except (ValueError, OSError) as trouble:
        fail(trouble)
    click.echo(f"removed {len(gone)} runs{': ' if gone else ''}{', '.join(gone)}")
