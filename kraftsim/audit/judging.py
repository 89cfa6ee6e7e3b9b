"""Asks the rules of an audit to tables in Parquet files, with DuckDB or with Spark.

The tables lie in `ROOT/TABLE/*.parquet`, as `kraftsim.audit.scan` stages them; a table without
files is empty.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from kraftsim.analysis.queries import SETTINGS, Cells
from kraftsim.analysis.workers import SparkWorkers
from kraftsim.audit.rule import (
    FINDINGS_KEPT_MAX,
    AuditOutcome,
    AuditRule,
    DiskWitness,
    Finding,
    HangingTransaction,
    RuleResult,
)
from kraftsim.audit.tables import TABLES, DiskTable
from kraftsim.catalogue import Catalogue

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

RULES: Final = Catalogue("kraftsim.audit.checks", "RULE", AuditRule)
_COLUMNS: Final = (
    "subject, message, since_ms, log_dir, file, position, at_offset, "
    "log_dir2, file2, position2, at_offset2"
)
_SQL_TYPES: Final = {
    "int": "INT",
    "long": "BIGINT",
    "text": "VARCHAR",
    "bool": "BOOLEAN",
    "bytes": "BLOB",
}
_SPARK_TYPES: Final = {**_SQL_TYPES, "text": "STRING", "bytes": "BINARY"}
JSON_AS_IN_SPARK: Final = (
    "CREATE MACRO get_json_object(document, path) AS json_extract_string(document, path)"
)
"""Gives DuckDB Spark's function."""
UNCLEAN_DIRECTORIES: Final = (
    "SELECT DISTINCT log_dir FROM log_dirs WHERE NOT is_clean AND (NOT has_metadata_log OR log_dir "
    "IN (SELECT log_dir FROM replicas WHERE topic <> '__cluster_metadata'))"
)
"""Log directories of brokers that were not stopped cleanly. A directory of a controller never has
.kafka_cleanshutdown, which LogManager writes, so it is not one of them.
"""
SMALL_TABLES_BYTES_MAX: Final = 64 << 20
LARGE_SHUFFLES: Final = "32"
"""Partitions of a shuffle; Spark merges small ones (adaptive execution)."""
MEMORY: Final = "2GB"
"""Of DuckDB; windows and joins over more are spilled beside the tables."""
Asked = Callable[[str], Sequence[Cells]]
"""Returns the rows of a query."""


class RuleAnswered(Protocol):
    """Is called after each rule: how many of how many are answered."""

    def __call__(self, done: int, total: int, /) -> None: ...


def no_progress(done: int, total: int, /) -> None:
    """Report nothing."""


@contextmanager
def duckdb_tables(root: Path) -> Iterator["duckdb.DuckDBPyConnection"]:
    """Yield a connection of DuckDB with a view of each table."""
    import duckdb

    with (
        TemporaryDirectory(prefix="spill-", dir=root.parent) as spill,
        duckdb.connect(config={"memory_limit": MEMORY, "temp_directory": spill}) as connection,
    ):
        connection.execute(JSON_AS_IN_SPARK)
        for table in TABLES.values():
            files = _files(root, table)
            listed = ", ".join(_quoted(file) for file in files)
            query = (
                f"SELECT * FROM read_parquet([{listed}], hive_partitioning = false)"
                if files
                else _empty(table, _SQL_TYPES)
            )
            connection.execute(f"CREATE VIEW {table.name} AS {query}")
        yield connection


def are_small(root: Path) -> bool:
    """Return whether the staged tables are small for Spark."""
    files = [file for table in TABLES.values() for file in _files(root, table)]
    return sum(os.path.getsize(file) for file in files) <= SMALL_TABLES_BYTES_MAX


def spark_views(spark: "SparkSession", root: Path) -> None:
    """Create a temporary view of each table in Spark, and set it up for their size: with small
    tables, tasks and compiled code take longer than the work.
    """
    is_small = are_small(root)
    for key, (small, large) in SETTINGS.items():
        spark.conf.set(key, small if is_small else large)
    spark.conf.set("spark.sql.shuffle.partitions", "1" if is_small else LARGE_SHUFFLES)
    for table in TABLES.values():
        files = _files(root, table)
        frame = spark.read.parquet(*files) if files else spark.sql(_empty(table, _SPARK_TYPES))
        frame.createOrReplaceTempView(table.name)


def judge_with_duckdb(
    root: Path, rules: Iterable[AuditRule], answered: RuleAnswered = no_progress
) -> list[RuleResult]:
    """Return what the rules find in staged tables."""
    with duckdb_tables(root) as connection:
        return judge(lambda query: connection.execute(query).fetchall(), rules, answered)


def judge_with_spark(
    spark: "SparkSession",
    root: Path,
    rules: Iterable[AuditRule],
    answered: RuleAnswered = no_progress,
) -> list[RuleResult]:
    """Return what the rules find in staged tables."""
    spark_views(spark, root)
    return judge(lambda query: [tuple(row) for row in spark.sql(query).collect()], rules, answered)


def judge_in_tasks(
    spark: "SparkSession",
    root: Path,
    rules: Iterable[AuditRule],
    answered: RuleAnswered = no_progress,
) -> list[RuleResult]:
    """Return what the rules find in staged tables: each rule is a task of Spark, in which DuckDB
    runs its SQL. The workers need DuckDB, and see the files.
    """
    names = [rule.name for rule in rules]
    found: dict[str, RuleResult] = {}

    def done(answer: bytes) -> None:
        result = msgspec.json.decode(answer, type=RuleResult)
        found[result.rule] = result

    SparkWorkers(spark).run(
        f"{__name__}:judge_task",
        [msgspec.json.encode((name, str(root.absolute()))) for name in names],
        done,
        ended=lambda count: answered(count, len(names)),
    )
    return [found[name] for name in names]


def judge_task(argument: bytes) -> bytes:
    """Ask one rule, by its name, to the tables in a directory; return its result as JSON."""
    name, root = msgspec.json.decode(argument, type=tuple[str, str])
    (result,) = judge_with_duckdb(Path(root), [RULES.named(name)])
    return msgspec.json.encode(result)


def judge(
    ask: Asked, rules: Iterable[AuditRule], answered: RuleAnswered = no_progress
) -> list[RuleResult]:
    """Return the result of each rule, in their order."""
    chosen = tuple(rules)
    results = []
    for number, rule in enumerate(chosen, 1):
        results.append(_result(ask, rule))
        answered(number, len(chosen))
    return results


def _result(ask: Asked, rule: AuditRule) -> RuleResult:
    examined = int(ask(rule.examined)[0][0] or 0)
    defect_count, _, defects = _findings(ask, rule, rule.defects, is_defect=True)
    undecided_count, unclean, undecided = (
        _findings(ask, rule, rule.undecided, is_defect=False) if rule.undecided else (0, 0, [])
    )
    if defect_count:
        outcome = AuditOutcome.DEFECT
    elif undecided_count:
        outcome = AuditOutcome.UNKNOWN
    else:
        outcome = AuditOutcome.SOUND if examined else AuditOutcome.NOT_APPLICABLE
    return RuleResult(
        rule=rule.name,
        outcome=outcome,
        examined=examined,
        defect_count=defect_count,
        undecided_count=undecided_count,
        undecided_unclean=unclean,
        findings=(*defects, *undecided),
    )


def _findings(
    ask: Asked, rule: AuditRule, query: str, *, is_defect: bool
) -> tuple[int, int, list[Finding]]:
    """Return the number of rows, of those about unclean directories, and the first rows."""
    transaction = rule.transaction_columns if is_defect else ""
    wanted = f"{_COLUMNS}, {transaction}" if transaction else _COLUMNS
    rows = ask(
        f"SELECT {wanted}, unclean, total FROM (SELECT found.*, count(*) OVER () AS total, "
        "count(coalesce(first_dir.unclean_dir, second_dir.unclean_dir)) OVER () AS unclean, "
        "row_number() OVER (ORDER BY subject, log_dir, file, position, at_offset, message) AS "
        f"place FROM ({query}) AS found "
        f"LEFT JOIN (SELECT log_dir AS unclean_dir FROM ({UNCLEAN_DIRECTORIES}) AS u1) AS "
        "first_dir ON found.log_dir = first_dir.unclean_dir "
        f"LEFT JOIN (SELECT log_dir AS unclean_dir FROM ({UNCLEAN_DIRECTORIES}) AS u2) AS "
        "second_dir ON found.log_dir2 = second_dir.unclean_dir"
        f") AS numbered WHERE place <= {FINDINGS_KEPT_MAX} ORDER BY place"
    )
    found = [
        _finding(rule, row, has_transaction=bool(transaction), is_defect=is_defect) for row in rows
    ]
    return (int(rows[0][-1]), int(rows[0][-2]), found) if rows else (0, 0, [])


def _finding(rule: AuditRule, row: Cells, *, has_transaction: bool, is_defect: bool) -> Finding:
    subject, message, since_ms, *places = row[:11]
    witnesses = [_witness(tuple(places[:4])), _witness(tuple(places[4:]))]
    return Finding(
        rule=rule.name,
        subject=subject,
        message=message,
        since_ms=since_ms,
        witnesses=tuple(each for each in witnesses if each is not None),
        is_defect=is_defect,
        transaction=HangingTransaction(
            topic=row[11],
            partition=row[12],
            producer_id=row[13],
            producer_epoch=row[14],
            coordinator_epoch=row[15],
            start_offset=row[16],
        )
        if has_transaction
        else None,
    )


def _witness(place: Cells) -> DiskWitness | None:
    log_dir, file, position, offset = place
    if log_dir is None:
        return None
    return DiskWitness(
        log_dir,
        file or "",
        -1 if position is None else position,
        -1 if offset is None else offset,
    )


def _files(root: Path, table: DiskTable) -> list[str]:
    return sorted(str(file) for file in (root / table.name).glob("*.parquet"))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _empty(table: DiskTable, types: dict[str, str]) -> str:
    names = ", ".join(
        f"CAST(NULL AS {types[column.type]}) AS {column.name}" for column in table.columns
    )
    return f"SELECT {names} WHERE 1 = 0"
