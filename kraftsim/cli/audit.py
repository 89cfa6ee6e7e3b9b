"""`kraftsim audit`: checks copies of the log directories of a cluster."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from kraftsim.cli.failure import OK, UNKNOWN, VIOLATED, Failure, fail
from kraftsim.cli.options import DIRECTORY, json_option, write_json
from kraftsim.cli.spark_options import ENGINES, options_of, spark_options, stages

PAGE: Final = "audit.html"
TABLES: Final = "tables"
EXIT_CODES: Final = {"sound": OK, "defect": VIOLATED, "unknown": UNKNOWN}
FILE: Final = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)


@click.command(
    epilog="""\b
Examples:
  kraftsim audit /copies/broker-1 /copies/broker-2 /copies/broker-3
  kraftsim audit /copies/* --out audit --json audit.json
  kraftsim audit /copies/* --records --acknowledged sent.jsonl --capture talk.pcap
  kraftsim audit /copies/* --rule no-hanging-transactions --now 2026-11-27T09:00:00Z
  kraftsim audit hdfs://backup/kafka/broker-1 --engine spark --master spark://10.0.0.1:7077

\b
Give the log directories of all brokers and controllers (log.dirs, metadata.log.dir), best of
brokers that were stopped cleanly. Nothing is written to them. `kraftsim list rules` shows what is
checked.
Exit codes: 0 sound, 1 a defect, 2 unknown: no defect, but brokers were not stopped cleanly or a
rule that must decide could not, 3 the command failed."""
)
@click.argument("directories", metavar="DIR...", nargs=-1, required=True)
@click.option(
    "--out",
    type=DIRECTORY,
    metavar="DIR",
    help=f"Write the page ({PAGE}) and the tables that were read ({TABLES}/NAME/*.parquet) there.",
)
@click.option(
    "--records",
    is_flag=True,
    help="Also read the records of users' topics, for the rules about keys and values. "
    "Decompresses every batch.",
)
@click.option("--no-crc", is_flag=True, help="Do not compute the checksums of batches.")
@click.option(
    "--remote-storage",
    "remote_storage",
    multiple=True,
    metavar="DIR",
    help="Directory with the objects of tiered storage, or a copy of it. Repeatable.",
)
@click.option(
    "--acknowledged",
    multiple=True,
    type=FILE,
    metavar="FILE",
    help="JSON lines of what an application got acknowledged and read. Repeatable.",
)
@click.option(
    "--capture",
    "captures",
    multiple=True,
    type=FILE,
    metavar="FILE",
    help="Packet capture (pcap, pcapng) of the clients' connections. Repeatable.",
)
@click.option(
    "--rule",
    "only",
    multiple=True,
    metavar="NAME",
    help="Ask only this rule; `kraftsim list rules`. Repeatable.",
)
@click.option("--skip", multiple=True, metavar="NAME", help="Do not ask this rule. Repeatable.")
@click.option(
    "--now",
    metavar="TIME",
    help="Count ages to this time: 2026-11-27T09:00:00Z, or milliseconds. Default: the present.",
)
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="auto",
    show_default=True,
    help="What runs the SQL. auto: DuckDB, unless a Spark is named.",
)
@spark_options
@json_option
def audit(
    directories: tuple[str, ...],
    out: Path | None,
    records: bool,
    no_crc: bool,
    remote_storage: tuple[str, ...],
    acknowledged: tuple[Path, ...],
    captures: tuple[Path, ...],
    only: tuple[str, ...],
    skip: tuple[str, ...],
    now: str | None,
    engine: str,
    master: str,
    remote: str,
    conf: tuple[str, ...],
    json_file: Path | None,
) -> int:
    """Check the log directories of a Kafka cluster: what is wrong, where, and since when.

    Reads segments, indexes, snapshots and checkpoints of Apache Kafka 2.8 to 4.x brokers and
    controllers, or of kraftsim, and compares replicas, coordinators and the metadata log. What
    cannot be decided from the directories is listed with the reason, never as a defect.
    """
    from kraftsim.analysis.engines import Engine
    from kraftsim.audit.audit import AuditRequest
    from kraftsim.audit.audit import audit as run_audit
    from kraftsim.audit.text import lines_of

    request = AuditRequest(
        directories=directories,
        now_ms=_time_ms(now),
        remote_storage=remote_storage,
        acknowledged=acknowledged,
        captures=captures,
        records=records,
        crc=not no_crc,
        only=only,
        skip=skip,
        engine=Engine(engine),
        options=options_of(master, remote, conf),
    )
    _check_place(out, directories)
    try:
        with _tables(out) as root, stages() as report:
            found = run_audit(request, root, report)
    except (KeyError, ValueError, OSError, RuntimeError) as trouble:
        fail(trouble)
    if str(json_file) != "-":
        for line in lines_of(found):
            click.echo(line)
    if out is not None:
        from kraftsim.audit.page import page_of

        try:
            (out / PAGE).write_text(page_of(found), encoding="utf-8")
        except OSError as trouble:
            raise Failure(f"--out {out}: {trouble.strerror}") from trouble
        if str(json_file) != "-":
            click.echo(f"page: {out / PAGE}")
    write_json(json_file, found)
    return EXIT_CODES[found.outcome.value]


@contextmanager
def _tables(out: Path | None) -> Iterator[Path]:
    """Yield the directory for the staged tables: below `out`, where those of an earlier audit are
    replaced, or a temporary one.
    """
    if out is None:
        with tempfile.TemporaryDirectory(prefix="kraftsim-audit-") as scratch:
            yield Path(scratch)
        return
    root = out / TABLES
    if root.exists():
        shutil.rmtree(root)
    root.mkdir(parents=True)
    yield root


def _check_place(out: Path | None, directories: tuple[str, ...]) -> None:
    """Refuse an output directory that is, or lies in, an audited one, or whose tables are none."""
    if out is None:
        return
    place = out.resolve()
    for directory in directories:
        if "://" not in directory and place.is_relative_to(Path(directory).resolve()):
            raise Failure(f"--out {out}: lies in {directory}, which an audit does not write to")
    try:
        foreign = [each for each in (out / TABLES).glob("**/*") if not _is_staged(each)]
    except OSError as trouble:
        raise Failure(f"--out {out}: {trouble.strerror}") from trouble
    if foreign:
        raise Failure(f"--out {out}: {foreign[0]} is not of an audit; name another directory")


def _is_staged(file: Path) -> bool:
    from kraftsim.audit.tables import TABLES as STAGED

    folder = file if file.is_dir() else file.parent
    return folder.name in STAGED and (file.is_dir() or file.suffix == ".parquet")


def _time_ms(text: str | None) -> int:
    """Return a time in milliseconds; without a zone it is UTC. Raises Failure."""
    if text is None:
        return time.time_ns() // 1_000_000
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as trouble:
        raise Failure(
            f"--now {text}: write a time as 2026-11-27T09:00:00Z, or in milliseconds"
        ) from trouble
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
