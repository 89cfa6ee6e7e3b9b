"""The page of the tables of an audit, and of the data source that reads them in Spark."""

from typing import Final

from kraftsim.audit.reading.jobs import PRUNING
from kraftsim.audit.tables import TABLES, DiskTable

INTRODUCTION: Final = """# Tables of log directories

What `kraftsim audit` reads from log directories, and what the data source `kafka-log` of PySpark
returns: {tables} tables. They are the same for Apache Kafka 2.8 to 4.x, in KRaft and ZooKeeper
mode, and for kraftsim. A row names the place on the disk that it comes from; all columns may be
null: the file does not say it. Offsets are inclusive unless a name says `end` or `next`, times are
milliseconds since 1970 in UTC, and positions and sizes are bytes. `int` has 32 bits, `long` 64.

Nothing is written to a log directory, and no file makes the reading fail: what cannot be read is a
row of [`problems`](#problems). The batches of a partition whose directory is marked for deletion,
or is stray, are not read, and neither are files that a compaction or a deletion left behind
(`.cleaned`, `.swap`, `.deleted`); [`files`](#files) lists them.

## In Spark

```python
from kraftsim import audit

audit.register(spark)
batches = spark.read.format("kafka-log").load("copies/broker-1,copies/broker-2")
hanging = batches.where("topic = 'payments' AND partition = 0").orderBy("log_dir", "base_offset")
snapshots = spark.read.format("kafka-log").option("table", "producer_snapshots").load("copies")
```

```sql
CREATE TEMPORARY VIEW states USING `kafka-log`
OPTIONS (path 's3a://incident/copies', table 'transaction_states');
SELECT transactional_id, status, record_offset FROM states WHERE status = 'PrepareCommit';
```

`pip install kraftsim[analysis]` on the driver and on each executor is all that is needed: no Scala,
no jar. Spark 4 finds the data source by itself (in SQL shells, too). `audit.register(spark)` is
needed only for filters: it sets `spark.sql.python.filterPushdown.enabled`, and files that a filter
on {pruning} excludes are not opened. A large segment is several tasks.

| option | default | meaning |
|---|---|---|
{options}

## In DuckDB

`kraftsim audit DIR --out audit` keeps what it read in `audit/tables/TABLE/*.parquet`.
"""
OPTIONS: Final = (
    (
        "`path`",
        "",
        "log directories, or directories that hold several: paths, or addresses of file systems "
        "(`s3a://`, `hdfs://`, `gs://`, `abfs://`), with commas between them",
    ),
    ("`table`", "`batches`", "one of the tables below"),
    (
        "`records`",
        "`false`",
        "whether the records of all topics are decoded; `true` for the table `records`. Other "
        "tables read headers only, and the records of Kafka's own topics",
    ),
    (
        "`crc`",
        "`true`",
        "whether checksums are computed; those of Kafka's own topics always are",
    ),
    ("`topic`, `partition`", "all", "only these are read; several with commas between them"),
    ("`remote`", "", "for `remote_files`: directories of remote storage"),
    (
        "`pushdown`",
        "`false`",
        "`true` does what `audit.register(spark)` does, in a session with the setting above",
    ),
    (
        "`fs.s3a.endpoint`, `fs.s3a.endpoint.region`, `fs.s3a.access.key`, `fs.s3a.secret.key`",
        "environment",
        "how an S3 store is reached, instead of `AWS_ENDPOINT_URL`, `AWS_REGION`, "
        "`AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` of the executors",
    ),
)


def audit_tables_page() -> str:
    """Return the page."""
    pruning = ", ".join(f"`{name}`" for name in PRUNING)
    options = "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in OPTIONS)
    lines = [INTRODUCTION.format(tables=len(TABLES), pruning=pruning, options=options)]
    for table in TABLES.values():
        lines += _table(table)
    return "\n".join(lines)


def _table(table: DiskTable) -> list[str]:
    rows = [
        f"| `{column.name}` | {column.type} | {column.meaning.replace('|', '&#124;')} |"
        for column in table.columns
    ]
    head = ["| column | type | meaning |", "|---|---|---|"]
    return [f"## {table.name}\n", f"{table.meaning}\n", *head, *rows, ""]
