"""The data source `kafka-log`: the rows of the local scan, in Spark and in SQL.

Source: SPARK-44076 (Python data sources), SPARK-51271 (filters).
"""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from kraftsim import audit
from kraftsim.audit.reading.pieces import arrow_of
from kraftsim.audit.scan import pieces_of, stage
from kraftsim.audit.tables import TABLES
from tests.audit.written_disks import LOG_0, write_log_dir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.interop
PROJECT_ROOT = Path(__file__).parents[2]
READ = [
    table.name
    for table in TABLES.values()
    if "log_dir" in [column.name for column in table.columns]
]
Rows = list[tuple[object, ...]]


@pytest.fixture(name="disk", scope="module")
def _disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a log directory, in which one batch is torn and one has a wrong checksum."""
    disk = write_log_dir(tmp_path_factory.mktemp("disk") / "node")
    content = (disk / "orders-0" / LOG_0).read_bytes()
    (disk / "orders-0" / LOG_0).write_bytes(content[:100] + b"?" + content[101:-3])
    return disk


@pytest.fixture(name="session", scope="module")
def _session(spark: "SparkSession") -> "SparkSession":
    audit.register(spark)
    return spark


def _sorted(found: Iterable[Iterable[object]]) -> Rows:
    plain = [
        tuple(bytes(each) if isinstance(each, bytearray) else each for each in row) for row in found
    ]
    return sorted(plain, key=repr)


def local_rows(place: Path | str, table: str) -> Rows:
    """Return the rows of the local scan."""
    found: list[tuple[object, ...]] = []
    for piece in pieces_of([place], with_records=True):
        if piece.table == table:
            found += [tuple(row.values()) for row in arrow_of(piece).to_pylist()]
    return _sorted(found)


def test_all_tables_have_the_rows_of_the_local_scan(session: "SparkSession", disk: Path) -> None:
    """Each task reads ranges and files as a worker process of the scan does."""
    for table in READ:
        frame = (
            session.read.format("kafka-log")
            .option("table", table)
            .option("records", "true")
            .load(str(disk))
        )
        assert _sorted(frame.collect()) == local_rows(disk, table), table
        assert frame.columns == [column.name for column in TABLES[table].columns]


def test_tasks_of_spark_stage_the_tables_of_the_local_scan(
    session: "SparkSession", disk: Path, tmp_path: Path
) -> None:
    here = stage([disk], tmp_path / "here", with_records=True)
    there = stage([disk], tmp_path / "there", with_records=True, spark=session)
    assert here == there and here.rows["records"] > 0
    for table in here.rows:
        staged = [
            _sorted(row.values() for row in pq.read_table(tmp_path / place / table).to_pylist())
            for place in ("here", "there")
        ]
        assert staged[0] == staged[1]


def test_spark_finds_the_data_source_by_itself(disk: Path) -> None:
    """Without `register`, in a fresh session: by the name of the package."""
    program = (
        "import sys\nfrom kraftsim.analysis.session import spark_session\n"
        "with spark_session() as spark:\n"
        "    print(spark.read.format('kafka-log').option('table', 'log_dirs').load(sys.argv[1])"
        ".count())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(disk)],
        env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["1"], done.stderr


def test_sql_reads_a_view_of_the_data_source(session: "SparkSession", disk: Path) -> None:
    """CREATE TEMPORARY VIEW ... USING."""
    session.sql(
        "CREATE OR REPLACE TEMPORARY VIEW the_batches USING `kafka-log` "
        f"OPTIONS (path '{disk}', crc 'false')"
    )
    found = session.sql(
        "SELECT topic, count(*), count(crc_valid) FROM the_batches GROUP BY topic ORDER BY topic"
    ).collect()
    assert ("orders", 3, 0) in [tuple(row) for row in found]


def test_filters_on_names_select_files(session: "SparkSession", disk: Path) -> None:
    """Fewer tasks for the same rows; the options do the same without filters."""
    from pyspark.sql.datasource import EqualTo, In

    from kraftsim.audit.data_source import KafkaLog, PruningReader

    source = KafkaLog({"path": str(disk), "pushdown": "true", "table": "batches"})
    reader = source.reader(source.schema())
    assert isinstance(reader, PruningReader)
    whole = sum(len(task.jobs) for task in reader.partitions())
    filters = [EqualTo(("topic",), "orders"), In(("partition",), (0, 1))]
    assert reader.pushFilters(filters) == filters
    assert [job.origin.topic for task in reader.partitions() for job in task.jobs] == ["orders"]
    assert whole > 1
    frame = session.read.format("kafka-log").load(str(disk))
    filtered = frame.where("topic = 'orders' AND partition = 0")
    chosen = session.read.format("kafka-log").option("topic", "orders").load(str(disk))
    assert filtered.rdd.getNumPartitions() == 1
    assert _sorted(filtered.collect()) == _sorted(chosen.collect())
    assert len(chosen.collect()) == 3


@pytest.mark.parametrize(
    "options, words",
    [
        ({"table": "nothing"}, "there is no table 'nothing'"),
        ({"crc": "perhaps"}, "true or false"),
        ({"partition": "one"}, "not a number"),
        ({"path": ""}, "needs the option `path`"),
    ],
)
def test_wrong_options_are_explained(options: dict[str, str], words: str) -> None:
    """With the option, its value, and what it may be."""
    from kraftsim.audit.data_source import KafkaLog, KafkaLogError

    with pytest.raises(KafkaLogError, match=words):
        source = KafkaLog({"path": "/nowhere", **options})
        source.reader(source.schema())


@pytest.fixture(name="bucket", scope="module")
def _bucket(disk: Path) -> Iterator[dict[str, str]]:
    """Copy the directory into an S3 server; yield the options that reach it."""
    boto3 = pytest.importorskip("boto3")
    from botocore.config import Config

    from tests.tiered_storage.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server

    with S3Server() as server:
        endpoint = f"http://127.0.0.1:{server.port}"
        client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name="us-east-1",
            config=Config(request_checksum_calculation="when_required"),
        )
        for file in disk.rglob("*"):
            if file.is_file():
                key = f"copies/node/{file.relative_to(disk)}"
                client.put_object(Bucket=BUCKET, Key=key, Body=file.read_bytes())
        yield {
            "path": f"s3a://{BUCKET}/copies",
            "fs.s3a.endpoint": endpoint,
            "fs.s3a.access.key": ACCESS_KEY,
            "fs.s3a.secret.key": SECRET_KEY,
            "fs.s3a.endpoint.region": "us-east-1",
        }


def test_directories_in_an_object_store_have_the_same_rows(
    session: "SparkSession", disk: Path, bucket: dict[str, str]
) -> None:
    """The settings of S3 are options, with the names that Hadoop gives them."""
    for table in ("batches", "records", "problems", "metadata_records", "replicas"):
        reader = session.read.format("kafka-log").option("table", table)
        found = reader.options(records="true", **bucket).load().drop("log_dir").collect()
        here = [row[1:] for row in local_rows(disk, table)]
        assert _sorted(found) == _sorted(here), table
