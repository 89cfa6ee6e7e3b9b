"""The data source `kafka-log` of PySpark: the tables of an audit, read from log directories.

    spark.read.format("kafka-log").option("table", "batches").load("/var/kafka,/var/kafka2")

Each range of a segment is a task, and some small files together. The rows are those that
`kraftsim.audit.scan` stages.
Source: SPARK-44076 (Python data sources), pyspark.sql.datasource.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    In,
    InputPartition,
)
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from kraftsim.analysis.places import use_settings
from kraftsim.audit.reading.disks import disk_of
from kraftsim.audit.reading.jobs import (
    PRUNING,
    Job,
    ReadOptions,
    jobs_of,
    read,
    shares,
    tables_of,
)
from kraftsim.audit.reading.pieces import Origin, TablePiece, arrow_of
from kraftsim.audit.reading.plan import (
    ReadReplica,
    ScannedDirectory,
    all_log_directories,
    replica_of,
)
from kraftsim.audit.reading.remote import remote_pieces
from kraftsim.audit.reading.segments import RANGE_BYTES, SegmentRange, joined
from kraftsim.audit.tables import TABLES, DiskTable

if TYPE_CHECKING:
    import pyarrow as pa

NAME: Final = "kafka-log"
DEFAULT_TABLE: Final = "batches"
TYPES: Final[Mapping[str, DataType]] = {
    "int": IntegerType(),
    "long": LongType(),
    "text": StringType(),
    "bool": BooleanType(),
    "bytes": BinaryType(),
}
OF_DIRECTORIES: Final = ("log_dirs", "files", "offset_checkpoints", "problems")
"""Tables with rows from the listing of a directory."""
Allowed: TypeAlias = dict[str, frozenset[object]]
"""By column: the values that are wanted."""


class KafkaLogError(ValueError):
    """An option of the data source is missing, or has no such value."""


def spark_schema(table: DiskTable) -> StructType:
    """Return the columns of a table as a schema of Spark."""
    return StructType(
        [
            StructField(column.name, TYPES[column.type], metadata={"comment": column.meaning})
            for column in table.columns
        ]
    )


class KafkaLog(DataSource):
    """The data source. Options:

    - `path`: log directories, or directories that hold several; paths or addresses, with commas
      between them.
    - `table`: one of `kraftsim.audit.tables`, by default `batches`.
    - `crc`: whether checksums are computed (true).
    - `records`: whether records of all topics are decoded (true for the table `records`).
    - `topic`, `partition`: only these files are read; several with commas between them.
    - `remote`: for `remote_files`, the directories of remote storage.
    - `pushdown`: whether filters of queries select files, for which Spark needs
      spark.sql.python.filterPushdown.enabled; `kraftsim.audit.register` sees to both.
    - `fs.s3a.endpoint`, `fs.s3a.access.key`, `fs.s3a.secret.key`, `fs.s3a.endpoint.region`:
      instead of the environment of the workers.
    """

    pushes_filters = False

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of the table."""
        return spark_schema(self._table())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a table."""
        is_pruning = self._is_set("pushdown", default=self.pushes_filters)
        return (PruningReader if is_pruning else KafkaLogReader)(self._request())

    def _table(self) -> DiskTable:
        name = self.options.get("table", DEFAULT_TABLE)
        if name not in TABLES:
            raise KafkaLogError(
                f"there is no table {name!r}: the option `table` is one of {', '.join(TABLES)}"
            )
        return TABLES[name]

    def _request(self) -> "Request":
        table = self._table().name
        remote = _listed(self.options.get("remote", ""))
        places = _listed(self.options.get("path", ""))
        if not (remote if table == "remote_files" else places):
            needed = "remote" if table == "remote_files" else "path"
            raise KafkaLogError(f"the table {table} needs the option `{needed}`: directories")
        allowed: Allowed = {}
        if "topic" in self.options:
            allowed["topic"] = frozenset(_listed(self.options["topic"]))
        if "partition" in self.options:
            allowed["partition"] = frozenset(
                self._number(each) for each in _listed(self.options["partition"])
            )
        settings = {
            f"spark.hadoop.{key}": value
            for key, value in self.options.items()
            if key.startswith("fs.s3a.")
        }
        return Request(
            table=table,
            places=places,
            remote=remote,
            options=ReadOptions(
                with_records=self._is_set("records", default=table == "records"),
                with_crc=self._is_set("crc", default=True),
                tables=frozenset((table,)),
            ),
            allowed=allowed,
            settings=settings,
        )

    def _number(self, text: str) -> int:
        if not text.isdecimal():
            raise KafkaLogError(f"the option `partition` has the value {text!r}: not a number")
        return int(text)

    def _is_set(self, name: str, *, default: bool) -> bool:
        value = self.options.get(name, str(default)).lower()
        if value not in ("true", "false"):
            raise KafkaLogError(f"the option `{name}` has the value {value!r}: true or false")
        return value == "true"


class PushingKafkaLog(KafkaLog):
    """The data source for a session that lets Python data sources see filters."""

    pushes_filters = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is read: a table of some directories, of files that have one of the allowed values."""

    table: str
    places: tuple[str, ...]
    remote: tuple[str, ...]
    options: ReadOptions
    allowed: Allowed
    settings: Mapping[str, str]


class Task(InputPartition):
    """What one task of Spark reads: jobs, replicas with the ranges of their logs, or the listing of
    directories.
    """

    def __init__(
        self,
        jobs: Sequence[Job] = (),
        replicas: Sequence[tuple[ReadReplica, Sequence[SegmentRange]]] = (),
        listed: Sequence[str] = (),
        remote: str = "",
    ) -> None:
        super().__init__(None)
        self.jobs, self.replicas = tuple(jobs), tuple(replicas)
        self.listed, self.remote = tuple(listed), remote


class KafkaLogReader(DataSourceReader):
    """Divides a table into tasks, and reads them."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._allowed = dict(request.allowed)

    def partitions(self) -> list[Task]:
        """Return the tasks."""
        request = self._request
        use_settings(request.settings)
        if request.table == "remote_files":
            return [Task(remote=place) for place in request.remote]
        tasks: list[Task] = []
        if request.table in OF_DIRECTORIES:
            tasks.append(Task(listed=request.places))
        for directory in all_log_directories(request.places):
            if request.table == "replicas":
                tasks += self._replicas(directory)
            else:
                tasks += self._jobs(directory)
        return tasks

    def _jobs(self, directory: ScannedDirectory) -> list[Task]:
        jobs = [
            job
            for job in jobs_of(disk_of(directory.path), directory, self._allows)
            if self._request.table in tables_of(job)
        ]
        return [Task(jobs=share) for share in shares(jobs, RANGE_BYTES)]

    def _replicas(self, directory: ScannedDirectory) -> list[Task]:
        disk = disk_of(directory.path)
        tasks = []
        for partition in directory.partitions:
            if self._allows(partition.origin):
                jobs = jobs_of(disk, directory, partition.origin.same_directory)
                ranges = [job for job in jobs if isinstance(job, SegmentRange)]
                tasks.append(Task(replicas=[(replica_of(directory, partition), ranges)]))
        return tasks

    def _allows(self, origin: Origin) -> bool:
        """Return whether rows from a file can be among those that are wanted."""
        return all(getattr(origin, column) in values for column, values in self._allowed.items())

    def _allowed_rows(self, pieces: Iterable[TablePiece]) -> Iterator[TablePiece]:
        """Leave out rows of a listing that are not wanted."""
        names = [column.name for column in TABLES[self._request.table].columns]
        tests = [
            (names.index(column), values)
            for column, values in self._allowed.items()
            if column in names
        ]
        for piece in pieces:
            if piece.table == self._request.table and isinstance(piece.rows, list):
                rows = [row for row in piece.rows if all(row[at] in kept for at, kept in tests)]
                yield TablePiece(piece.table, rows)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Yield the rows of a task."""
        assert isinstance(partition, Task), "these are the partitions of this reader"
        use_settings(self._request.settings)
        for piece in self._pieces(partition):
            if piece.table == self._request.table:
                yield arrow_of(piece)

    def _pieces(self, task: Task) -> Iterator[TablePiece]:
        options = self._request.options
        for job in task.jobs:
            yield from read(job, options)
        for replica, ranges in task.replicas:
            ends = []
            for each in ranges:
                ends.append((yield from read(each, options)))
            yield replica.piece(joined(ends))
        for directory in all_log_directories(task.listed):
            yield from self._allowed_rows(directory.pieces)
        if task.remote:
            yield from self._allowed_rows(remote_pieces(task.remote))


class PruningReader(KafkaLogReader):
    """Reads no files whose rows a filter would drop; the filters are still Spark's to apply."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Note the values of columns that a file's name has; return all filters."""
        for each in filters:
            if isinstance(each, EqualTo | EqualNullSafe):
                self._keep(each.attribute, (each.value,))
            elif isinstance(each, In):
                self._keep(each.attribute, each.value)
        return filters

    def _keep(self, attribute: tuple[str, ...], values: Iterable[object]) -> None:
        if len(attribute) == 1 and attribute[0] in PRUNING:
            wanted = frozenset(values)
            self._allowed[attribute[0]] = self._allowed.get(attribute[0], wanted) & wanted


def _listed(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())
