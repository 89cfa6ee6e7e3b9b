"""Options of the verbs that analyse: which engine runs the SQL, and where Spark runs."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kraftsim.cli.failure import Failure

if TYPE_CHECKING:
    from kraftsim.analysis.session import SparkOptions

Verb = TypeVar("Verb", bound=Callable[..., object])
ENGINES = ("auto", "duckdb", "spark")


def spark_options(verb: Verb) -> Verb:
    """Add `--master`, `--remote` and `--conf`; the verb passes them to `options_of`."""
    master = click.option(
        "--master",
        default="",
        metavar="URL",
        help="Spark's master, for example spark://host:7077. Default: all cores of this machine.",
    )
    remote = click.option(
        "--remote", default="", metavar="URL", help="A Spark Connect server: sc://host:15002."
    )
    conf = click.option(
        "--conf",
        multiple=True,
        metavar="KEY=VALUE",
        is_eager=True,  # before addresses are checked
        callback=_take_store,
        help="A setting of Spark, for example spark.executor.memory=4g. Repeatable.",
    )
    return master(remote(conf(verb)))


def _take_store(
    context: click.Context, parameter: click.Parameter, conf: tuple[str, ...]
) -> tuple[str, ...]:
    """Let the settings `spark.hadoop.fs.s3a.*` decide how s3:// and s3a:// are reached."""
    if any(each.startswith("spark.hadoop.fs.s3a.") for each in conf):
        from kraftsim.analysis.places import use_settings

        use_settings(dict(each.split("=", 1) for each in conf if "=" in each))
    return conf


def engine_option(verb: Verb) -> Verb:
    """Add `--engine`; the verb gets `engine: str`."""
    option = click.option(
        "--engine",
        type=click.Choice(ENGINES),
        default="auto",
        show_default=True,
        help="What runs the SQL. auto: DuckDB for runs below 50,000 events unless a Spark is "
        "named, Spark above.",
    )
    return option(verb)


def options_of(master: str, remote: str, conf: tuple[str, ...]) -> "SparkOptions":
    """Return the options as a value. Raises Failure for a setting that is no KEY=VALUE."""
    from kraftsim.analysis.session import SparkOptions

    if master and remote:
        raise Failure("--master and --remote exclude each other: a Connect server has its master")
    settings: dict[str, str] = {}
    for each in conf:
        key, separator, value = each.partition("=")
        if not separator or not key.strip():
            raise Failure(f"--conf {each}: expected KEY=VALUE, as spark.executor.memory=4g")
        settings[key.strip()] = value.strip()
    return SparkOptions(master=master, remote=remote, conf=settings)


@contextmanager
def stages(*, shown: bool = True) -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar per stage of long work on a terminal; the block calls the yielded function with
    the stage, what is done of it, and its total.
    """
    import sys

    if not shown or not sys.stderr.isatty():
        yield lambda stage, done, total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns: tuple[Any, ...] = (
        TextColumn("{task.description:<9}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[amount]}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True, markup=False), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total, amount="")
            bar.update(
                tasks[stage], completed=done, total=total, amount=_amount(stage, done, total)
            )

        yield report


UNITS: Mapping[str, str] = {
    "parse": "bytes",
    "sort": "events",
    "count": "queries",
    "judge": "queries",
    "read": "bytes",
    "clients": "bytes",
}


def _amount(stage: str, done: int, total: int) -> str:
    return f"{done:,} of {total:,} {UNITS.get(stage, '')}".rstrip()
