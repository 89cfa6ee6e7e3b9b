"""The log directory of a real broker: the scan and Kafka's own DumpLogSegments say the same.

Source: kafka.tools.DumpLogSegments.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kraftsim.audit.judging import duckdb_tables
from kraftsim.audit.reading.pieces import Value
from kraftsim.audit.scan import stage
from tests.apache_kafka.harness import ApacheKafka, run_java, run_tool
from tests.audit.written_disks import rows

pytestmark = pytest.mark.interop
SETTINGS: Final = {"log.segment.bytes": "300000", "log.index.interval.bytes": "1024"}
BATCH: Final = re.compile(r"baseOffset: \d+ lastOffset: .*")
FIELD: Final = re.compile(r"(\w+): (\S+)")
RECORD: Final = re.compile(r"\| offset: (\d+)")
NAMES: Final = {
    "baseOffset": "base_offset",
    "lastOffset": "last_offset",
    "count": "records",
    "baseSequence": "base_sequence",
    "lastSequence": "last_sequence",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "partitionLeaderEpoch": "leader_epoch",
    "isTransactional": "is_transactional",
    "isControl": "is_control",
    "position": "position",
    "CreateTime": "max_ms",
    "LogAppendTime": "max_ms",
    "size": "size",
    "magic": "magic",
    "compresscodec": "compression",
    "crc": "crc",
    "isvalid": "crc_valid",
}


@pytest.fixture(name="data", scope="module")
def _data() -> Iterator[Path]:
    """Yield what a broker wrote: transactions, compressed batches, group offsets, many segments."""
    with ApacheKafka(settings=SETTINGS) as kafka:
        for topic in ("plain", "orders", "packed"):
            kafka.tool("topics", "--create", "--topic", topic, "--partitions", "2")
        for topic, more in (
            ("plain", ()),
            ("orders", ("--transactional-id", "app", "--transaction-duration-ms", "5")),
            ("packed", ()),
        ):
            done = run_java(
                kafka.release,
                "org.apache.kafka.tools.ProducerPerformance",
                *("--topic", topic, "--num-records", "4000", "--record-size", "200"),
                *("--throughput", "-1", *more),
                *("--producer-props", f"bootstrap.servers={kafka.bootstrap}"),
                f"compression.type={'lz4' if topic == 'packed' else 'none'}",
            )
            assert done.returncode == 0, done.stdout + done.stderr
        kafka.tool(
            "console-consumer",
            *("--topic", "orders", "--group", "g", "--from-beginning", "--max-messages", "4000"),
        )
        kafka.stop()
        yield kafka.data


def dumped(data: Path, suffix: str, *options: str) -> dict[str, list[str]]:
    """Return the lines of Kafka's tool for each file of a kind."""
    files = sorted(file for file in data.glob(f"*-*/*{suffix}") if file.stat().st_size)
    printed = run_tool(
        "3.9.1", "dump-log", *options, "--files", ",".join(str(file) for file in files)
    )
    found: dict[str, list[str]] = {}
    for line in printed.splitlines():
        if line.startswith("Dumping "):
            found[str(Path(line.removeprefix("Dumping ")).relative_to(data))] = lines = []
        elif found:
            lines.append(line)
    assert len(found) == len(files) > 0, "every file was dumped"
    return found


def by_file(found: list[dict[str, Value]]) -> dict[str, list[dict[str, Value]]]:
    """Group rows by file."""
    grouped: dict[str, list[dict[str, Value]]] = {}
    for row in found:
        grouped.setdefault(str(row["file"]), []).append(row)
    return grouped


def test_batches_are_those_that_kafka_prints(data: Path) -> None:
    """Every field of every batch, of all segments of all topics."""
    scanned = by_file(rows(data, "batches"))
    said = dumped(data, ".log")
    assert set(scanned) == {file for file, lines in said.items() if any(map(BATCH.match, lines))}
    assert len(scanned) > 12, "several topics have several segments"
    for file, batches in scanned.items():
        expected = [dict(FIELD.findall(line)) for line in said[file] if BATCH.match(line)]
        for row, fields in zip(batches, expected, strict=True):
            for name, value in fields.items():
                if name in NAMES:
                    shown = str(row[NAMES[name]])
                    assert shown.lower() == value, f"{file} {name} {row}"


def test_records_are_as_many_as_kafka_prints(data: Path) -> None:
    """The offsets of all records, compressed or not."""
    scanned = by_file(rows(data, "records", with_records=True))
    for file, lines in dumped(data, ".log", "--deep-iteration", "--print-data-log").items():
        offsets = [int(found[1]) for line in lines if (found := RECORD.match(line))]
        assert [row["record_offset"] for row in scanned.get(file, [])] == offsets


def test_indexes_are_as_kafka_prints_them(data: Path) -> None:
    """Entries of offset indexes and transaction indexes, and producers of snapshots."""
    assert not rows(data, "problems")
    index = by_file(rows(data, "offset_index"))
    for file, lines in dumped(data, ".index").items():
        entries = [dict(FIELD.findall(line)) for line in lines if line.startswith("offset: ")]
        assert [
            (str(row["indexed_offset"]), str(row["indexed_position"]))
            for row in index.get(file, [])
        ] == [(entry["offset"], entry["position"]) for entry in entries]
    producers = by_file(rows(data, "producer_snapshots"))
    for file, lines in dumped(data, ".snapshot").items():
        entries = [dict(FIELD.findall(line)) for line in lines if line.startswith("producerId: ")]
        assert [
            (str(row["producer_id"]), str(row["producer_epoch"]), str(row["coordinator_epoch"]))
            for row in producers[file]
            if "producer_id" in row
        ] == [
            (entry["producerId"], entry["producerEpoch"], entry["coordinatorEpoch"])
            for entry in entries
        ]


def test_duckdb_counts_what_the_scan_counted(data: Path, tmp_path: Path) -> None:
    """Of the broker's log: the records that the producers sent, and the markers."""
    staged = stage([data], tmp_path, with_records=True)
    with duckdb_tables(tmp_path) as connection:
        for table, count in staged.rows.items():
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchall() == [(count,)]
        sent = connection.execute(
            "SELECT topic, count(*) FROM records WHERE NOT is_control AND topic NOT LIKE '\\_\\_%' "
            "ESCAPE '\\' GROUP BY topic ORDER BY topic"
        ).fetchall()
        assert sent == [("orders", 4000), ("packed", 4000), ("plain", 4000)]
        sums = connection.execute(
            "SELECT count(*), sum(records) FROM batches WHERE topic = 'orders' AND NOT is_control"
        ).fetchall()
        assert sums[0][1] == 4000
