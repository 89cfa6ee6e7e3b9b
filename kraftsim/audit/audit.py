"""An audit from start to end: checks the directories, stages their tables, asks the rules, and
returns the report.
"""

import difflib
import importlib.util
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kraftsim.analysis.engines import Engine
from kraftsim.analysis.ingest import Report, no_report
from kraftsim.analysis.queries import Cells
from kraftsim.analysis.session import SparkOptions, spark_session
from kraftsim.audit.clients.staging import stage_clients
from kraftsim.audit.judging import (
    RULES,
    Asked,
    duckdb_tables,
    judge,
    judge_in_tasks,
    spark_views,
)
from kraftsim.audit.reading.plan import log_directories
from kraftsim.audit.report import AuditReport, RuleNotAsked, report_of
from kraftsim.audit.rule import AuditRule
from kraftsim.audit.scan import stage
from kraftsim.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
"""A Hadoop URI, which Hadoop opens and checks."""


class NoLogDirectory(ValueError):
    """What was named is no log directory; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest:
    """What to audit, and how. `now_ms` is the time that ages are counted to."""

    directories: tuple[str, ...]
    now_ms: int
    remote_storage: tuple[str, ...] = ()
    acknowledged: tuple[Path, ...] = ()
    captures: tuple[Path, ...] = ()
    records: bool = False
    crc: bool = True
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    engine: Engine = Engine.AUTO
    options: SparkOptions = field(default_factory=SparkOptions)


def audit(request: AuditRequest, root: Path, report: Report = no_report) -> AuditReport:
    """Stage the tables of an audit in `root`, ask its rules, and return the report.

    Raises NoLogDirectory, ValueError for an unknown rule and for a file of a client that is
    malformed, OSError, JavaMissing, and RuntimeError for a query that failed.
    """
    check_directories(request.directories)
    rules, not_asked = chosen_rules(request)
    engine = chosen_engine(request)
    with (
        nullcontext()
        if engine is Engine.DUCKDB
        else spark_session(request.options, is_large=engine is Engine.SPARK_SQL)
    ) as spark:
        stage(
            request.directories,
            root,
            remote_dirs=request.remote_storage,
            with_records=request.records,
            with_crc=request.crc,
            spark=spark,
            report=lambda done, total: report("read", done, total),
        )
        stage_clients(root, request.acknowledged, request.captures, report)

        def judged(done: int, total: int, /) -> None:
            report("judge", done, total)

        with asking(root, spark if engine is Engine.SPARK_SQL else None) as ask:
            results = (
                judge(ask, rules, judged)
                if spark is None or engine is Engine.SPARK_SQL
                else judge_in_tasks(spark, root, rules, judged)
            )
            return report_of(
                ask,
                list(zip(rules, results, strict=True)),
                not_asked,
                now_ms=request.now_ms,
                version=__version__,
            )


def chosen_engine(request: AuditRequest) -> Engine:
    """Return the engine for `auto`: DuckDB in this process, unless it is not installed or a Spark
    is named.
    """
    if request.engine is not Engine.AUTO:
        return request.engine
    if importlib.util.find_spec("duckdb") is None:
        return Engine.SPARK_SQL
    return Engine.SPARK if request.options.is_asked else Engine.DUCKDB


@contextmanager
def asking(root: Path, spark: "SparkSession | None") -> Iterator[Asked]:
    """Yield what runs queries over staged tables: Spark SQL with a session, else DuckDB."""
    if spark is None:
        import duckdb

        with duckdb_tables(root) as connection:
            yield _or_one_line(lambda query: connection.execute(query).fetchall(), duckdb.Error)
        return
    from pyspark.errors import PySparkException

    spark_views(spark, root)
    yield _or_one_line(
        lambda query: [tuple(row) for row in spark.sql(query).collect()],
        PySparkException,
    )


def _or_one_line(ask: Asked, *errors: type[Exception]) -> Asked:
    """Return what runs queries, and raises RuntimeError with one line for an engine's errors: it
    ran out of memory or disk.
    """

    def asked(query: str) -> Sequence[Cells]:
        try:
            return ask(query)
        except errors as trouble:
            lines = str(trouble).strip().splitlines() or [type(trouble).__name__]
            raise RuntimeError(f"the query of a rule failed: {lines[0]}") from trouble

    return asked


def chosen_rules(request: AuditRequest) -> tuple[tuple[AuditRule, ...], tuple[RuleNotAsked, ...]]:
    """Return the rules to ask, and those that are left out. Raises ValueError."""
    rules = sorted(RULES.all(), key=lambda rule: rule.name)
    _check_names((*request.only, *request.skip), [rule.name for rule in rules])
    only, skip = set(request.only), set(request.skip)
    asked, not_asked = [], []
    for rule in rules:
        reason = _reason_against(rule, request)
        if only and rule.name not in only:
            continue
        if rule.name in skip:
            reason = "left out with --skip"
        if reason:
            not_asked.append(RuleNotAsked(name=rule.name, reason=reason))
        else:
            asked.append(rule)
    return tuple(asked), tuple(not_asked)


def _check_names(names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            meant = f"; did you mean {near[0]}" if near else ""
            raise ValueError(f"no rule is called {name}{meant}; see `kraftsim list rules`")


def _reason_against(rule: AuditRule, request: AuditRequest) -> str:
    has_clients = bool(request.acknowledged or request.captures)
    if any(table.startswith("client_") for table in rule.reads) and not has_clients:
        return "rules about clients need --acknowledged or --capture"
    if rule.needs_records and not request.records:
        return "rules about keys and values need --records"
    if "remote_files" in rule.reads and not request.remote_storage:
        return "rules about objects in remote storage need --remote-storage"
    return ""


def check_directories(directories: Sequence[str]) -> None:
    """Check that each is a log directory, or holds some, and that none is named twice.

    Raises NoLogDirectory.
    """
    seen: dict[str, str] = {}
    for directory in directories:
        if SCHEME.match(directory) is None:
            _check_listing(Path(directory))
        found = [each for each in log_directories(directory) if each.files]
        if not found:
            raise NoLogDirectory(
                f"{directory}: is no log directory of Kafka, and holds none: there is neither "
                "meta.properties nor a directory of a partition, such as orders-0, with a segment"
            )
        for each in found:
            real = each.path if SCHEME.match(each.path) else os.path.realpath(each.path)
            if real in seen:
                raise NoLogDirectory(f"{directory}: has the log directory {seen[real]} again")
            seen[real] = each.path


def _check_listing(directory: Path) -> None:
    try:
        if not os.listdir(directory):
            raise NoLogDirectory(f"{directory}: is empty")
    except FileNotFoundError:
        raise NoLogDirectory(f"{directory}: no such directory") from None
    except NotADirectoryError:
        raise NoLogDirectory(
            f"{directory}: is a file; name the log directory that it lies in"
        ) from None
    except OSError as trouble:
        raise NoLogDirectory(f"{directory}: {trouble.strerror}") from trouble
