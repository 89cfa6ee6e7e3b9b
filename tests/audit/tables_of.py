"""Log directories as tables in memory: a test writes logs batch by batch, damages a row, and asks
the rules of an audit.
"""

from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from kraftsim.audit.judging import judge
from kraftsim.audit.rule import AuditRule, RuleResult
from kraftsim.audit.tables import TABLES

Row = dict[str, Any]
BATCH_BYTES = 100
START_MS = 1_800_000_000_000
CLUSTER = "cluster"


class LogDir:
    """One log directory; closed cleanly unless a test says otherwise."""

    def __init__(self, disks: "Disks", node_id: int, *, is_clean: bool) -> None:
        self.disks = disks
        self.path = f"/copies/broker-{node_id}"
        self.node_id = node_id
        self.row = disks.add(
            "log_dirs",
            log_dir=self.path,
            node_id=node_id,
            cluster_id=CLUSTER,
            version=1,
            is_clean=is_clean,
            newest_ms=START_MS + 1_000_000,
        )

    def log(self, topic: str = "orders", partition: int = 0, **replica: Any) -> "Log":
        """Begin a log; further values are columns of `replicas`."""
        return Log(self, topic, partition, replica)


class Log:
    """One replica; its row of `replicas` follows its batches unless columns are given."""

    def __init__(self, home: LogDir, topic: str, partition: int, replica: Row) -> None:
        self.home = home
        self.place = {
            "log_dir": home.path,
            "node_id": home.node_id,
            "directory": f"{topic}-{partition}",
            "topic": topic,
            "partition": partition,
        }
        self.replica = {"topic_id": f"id-of-{topic}", "is_future": False, **replica}
        self.batches: list[Row] = []
        self.segments: list[Row] = []
        self.end_offset = self.now_ms = 0
        self.leader_epoch = 0
        self.roll()
        home.disks.logs.append(self)

    @property
    def segment(self) -> int:
        """The base offset of the newest segment."""
        return int(self.segments[-1]["base_offset"])

    def file(self, base_offset: int, suffix: str) -> str:
        """Return the name of a file of the log."""
        return f"{self.place['directory']}/{base_offset:020d}.{suffix}"

    def roll(self, base_offset: int | None = None, *, with_snapshot: bool = False) -> None:
        """Begin a segment."""
        self.end_offset = self.end_offset if base_offset is None else base_offset
        self.position = 0
        self.segments.append(self._file("log", self.end_offset))
        if with_snapshot:
            self.snapshot()

    def _file(self, kind: str, base_offset: int, **columns: Any) -> Row:
        suffix = {"log": "log", "snapshot": "snapshot"}.get(kind, kind)
        row = {
            **self.place,
            "file": self.file(base_offset, suffix),
            "kind": kind,
            "base_offset": base_offset,
            "size": 0,
            "modified_ms": START_MS + self.now_ms,
            "state": "live",
            **columns,
        }
        return self.home.disks.add("files", **row)

    def batch(self, records: int = 1, **columns: Any) -> Row:
        """Append a batch; columns replace those that follow from the log. Advances the time by a
        second.
        """
        self.now_ms += 1000
        row = {
            **self.place,
            "file": self.file(self.segment, "log"),
            "position": self.position,
            "size": BATCH_BYTES,
            "base_offset": self.end_offset,
            "last_offset": self.end_offset + records - 1,
            "leader_epoch": self.leader_epoch,
            "magic": 2,
            "crc": 7000 + self.end_offset,
            "crc_valid": True,
            "compression": "none",
            "timestamp_type": "CreateTime",
            "is_transactional": False,
            "is_control": False,
            "first_ms": START_MS + self.now_ms,
            "max_ms": START_MS + self.now_ms,
            "producer_id": -1,
            "producer_epoch": -1,
            "base_sequence": -1,
            "last_sequence": -1,
            "records": records,
            "segment_offset": self.segment,
            **columns,
        }
        self.batches.append(row)
        self.position += row["size"]
        self.end_offset = row["last_offset"] + 1
        return row

    def produce(self, producer: int, epoch: int, sequence: int, records: int = 1, **of: Any) -> Row:
        """Append a batch of an idempotent producer."""
        return self.batch(
            records,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            last_sequence=(sequence + records - 1) % 2**31,
            **of,
        )

    def transact(self, producer: int, epoch: int, sequence: int, records: int = 1) -> Row:
        """Append a batch of a transaction."""
        return self.produce(producer, epoch, sequence, records, is_transactional=True)

    def marker(self, kind: str, producer: int, epoch: int, coordinator_epoch: int = 0) -> Row:
        """Append a transaction marker."""
        return self.batch(
            producer_id=producer,
            producer_epoch=epoch,
            is_transactional=True,
            is_control=True,
            control_type=kind,
            coordinator_epoch=coordinator_epoch,
        )

    def snapshot(self, *rows: Row, offset: int | None = None) -> str:
        """Write a producer snapshot at the end, or at an offset; return its file."""
        at = self.end_offset if offset is None else offset
        file = self._file("snapshot", at)["file"]
        for row in rows or ({},):
            self.home.disks.add(
                "producer_snapshots", **{**self.place, "file": file, "snapshot_offset": at, **row}
            )
        return str(file)

    def aborted(self, producer: int, first: int, last: int, stable: int) -> None:
        """Add an entry to the transaction index of the newest segment."""
        file = self.file(self.segment, "txnindex")
        files = self.home.disks.rows["files"]
        if not any(row["file"] == file and row["log_dir"] == self.home.path for row in files):
            self._file("txnindex", self.segment)
        self.home.disks.add(
            "aborted_transactions",
            **self.place,
            file=file,
            base_offset=self.segment,
            producer_id=producer,
            first_offset=first,
            last_offset=last,
            last_stable_offset=stable,
        )

    def epochs(self, *entries: tuple[int, int]) -> None:
        """Write a leader-epoch-checkpoint of epochs and start offsets."""
        file = f"{self.place['directory']}/leader-epoch-checkpoint"
        self.home.disks.add("files", **self.place, file=file, kind="checkpoint", state="live")
        for epoch, start in entries:
            self.home.disks.add(
                "leader_epochs", **self.place, file=file, leader_epoch=epoch, start_offset=start
            )

    def problem(self, problem: str, *, file: str = "", **columns: Any) -> None:
        """Report a problem in the newest segment, or in a file."""
        self.home.disks.add(
            "problems",
            **{
                **self.place,
                "file": file or self.file(self.segment, "log"),
                "position": self.position,
                "problem": problem,
                "reason": "as read",
                "is_tail": False,
                **columns,
            },
        )

    def close(self) -> None:
        """Add the rows of the batches and of the replica."""
        for row in self.batches:
            self.home.disks.add("batches", **row)
        self.home.disks.add(
            "replicas",
            **{
                **self.place,
                "first_offset": self.batches[0]["base_offset"] if self.batches else None,
                "end_offset": self.batches[-1]["last_offset"] + 1 if self.batches else self.segment,
                "segments": len(self.segments),
                "first_segment_offset": self.segments[0]["base_offset"],
                "recovery_point": self.end_offset,
                "high_watermark": self.end_offset,
                **self.replica,
            },
        )


def producer_row(producer: int, epoch: int, **columns: Any) -> Row:
    """Return a row of a producer snapshot, after a marker only unless columns say more."""
    return {
        "producer_id": producer,
        "producer_epoch": epoch,
        "last_sequence": -1,
        "last_offset": -1,
        "offset_delta": 0,
        "timestamp_ms": START_MS,
        "coordinator_epoch": -1,
        "transaction_first_offset": -1,
        **columns,
    }


class Disks:
    """All tables of an audit."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {name: [] for name in TABLES}
        self.logs: list[Log] = []

    def add(self, table: str, **columns: Any) -> Row:
        """Add a row; columns that are left out are null. Returns it, so that it can be changed."""
        self.rows[table].append(columns)
        return columns

    def broker(self, node_id: int = 1, *, is_clean: bool = True) -> LogDir:
        """Add a log directory."""
        return LogDir(self, node_id, is_clean=is_clean)

    def topic(self, topic: str = "orders", *, isr: str = "[1, 2, 3]", policy: str = "") -> None:
        """Register a topic with one partition in the metadata log."""
        at = {
            "log_dir": "/copies/broker-1",
            "record_offset": 10,
            "file": "__cluster_metadata-0/00000000000000000000.log",
        }
        self.add(
            "metadata_topics",
            **at,
            topic_id=f"id-of-{topic}",
            topic_name=topic,
            is_removed=False,
        )
        self.add(
            "metadata_partitions",
            **at,
            topic_id=f"id-of-{topic}",
            partition_id=0,
            is_change=False,
            leader=1,
            isr=isr,
        )
        if policy:
            data = f'{{"resourceType": 2, "resourceName": "{topic}", "name": "cleanup.policy", '
            self.add(
                "metadata_records",
                **at,
                type="CONFIG_RECORD",
                data=data + f'"value": "{policy}"}}',
            )

    def tables(self) -> Mapping[str, pa.Table]:
        """Return all tables in Arrow."""
        for log in self.logs:
            log.close()
        self.logs.clear()
        return {
            name: pa.Table.from_pylist(rows, schema=TABLES[name].schema)
            for name, rows in self.rows.items()
        }

    def write(self, root: Path) -> None:
        """Stage the tables in Parquet files."""
        for name, table in self.tables().items():
            (root / name).mkdir(parents=True)
            pq.write_table(table, root / name / "part-0.parquet")

    def results(self, *rules: AuditRule) -> list[RuleResult]:
        """Return what rules find, by DuckDB."""
        with closing(duckdb.connect()) as connection:
            for name, table in self.tables().items():
                connection.register(name, table)
            return judge(lambda query: connection.execute(query).fetchall(), rules)

    def result(self, rule: AuditRule) -> RuleResult:
        """Return what one rule finds."""
        return self.results(rule)[0]


def messages(result: RuleResult, *, defects: bool = True) -> list[str]:
    """Return the messages of the defects, or of what is undecided."""
    return [each.message for each in result.findings if each.is_defect is defects]


def outcomes(results: Iterable[RuleResult]) -> dict[str, str]:
    """Return the outcome of each rule."""
    return {each.rule: each.outcome.value for each in results}
