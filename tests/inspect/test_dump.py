"""Files of a log directory line by line: files of Apache Kafka as printed by its own tool, torn and
corrupt ones without a crash.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kraftsim.cli.main import kraftsim
from kraftsim.inspect.dump.rows import java_double, json_text
from protocol.records.batches import build_batch
from protocol.records.message_sets import build_message_set
from protocol.records.record import Compression, Record
from protocol.storage.indexes import OffsetEntry, TimeEntry, build_offset_index, build_time_index

HERE = Path(__file__).parent
WRITTEN_BY_KAFKA = HERE.parent / "wire" / "kafka_3_9_1"
SEGMENT = "00000000000000000000"


def dump(*arguments: str | Path) -> Result:
    return CliRunner().invoke(kraftsim, ["dump", *map(str, arguments)], standalone_mode=False)


@pytest.mark.parametrize(
    ("expected", "options", "is_wanted"),
    [
        ("golden_data.txt", ["--print-data-log"], lambda name: name.startswith("golden")),
        (
            "golden_metadata.txt",
            ["--cluster-metadata-decoder"],
            lambda name: not name.startswith("golden"),
        ),
        ("golden_metadata.txt", ["--print-data-log"], lambda name: not name.startswith("golden")),
    ],
)
def test_every_line_matches_dump_log_segments(
    expected: str,
    options: list[str],
    is_wanted: Callable[[str], bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """golden_*.txt is the output of DumpLogSegments 3.9.1 for these files; the path of a file
    selects its decoder.
    """
    monkeypatch.chdir(WRITTEN_BY_KAFKA)
    read_by_kafka = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")
    files = sorted(
        str(file.relative_to(WRITTEN_BY_KAFKA))
        for file in WRITTEN_BY_KAFKA.rglob("*")
        if file.suffix in read_by_kafka
    )
    said = dump(*options, *filter(is_wanted, files))
    assert said.stdout.splitlines() == (HERE / expected).read_text().splitlines()
    assert (said.stderr, said.return_value) == ("", 0)


def test_small_files_are_decoded_by_their_names() -> None:
    said = dump(WRITTEN_BY_KAFKA, "--json")
    rows = [json.loads(line) for line in said.stdout.splitlines()]
    kinds = {row["kind"]: row for row in rows}
    assert kinds["quorumState"]["leaderId"] == 1 and kinds["metaProperties"]["nodeId"] == 1
    assert kinds["leaderEpoch"] | {"file": ""} == {
        "file": "",
        "kind": "leaderEpoch",
        "leaderEpoch": 0,
        "startOffset": 0,
    }
    assert kinds["offset"]["topic"] and len(kinds["partitionMetadata"]["topicId"]) == 22
    assert {"batch", "producer", "abortedTransaction", "offsetIndexEntry", "timeIndexEntry"} <= set(
        kinds
    )
    assert said.return_value == 0


def test_json_matches_the_text_lines() -> None:
    log = WRITTEN_BY_KAFKA / "golden-0" / f"{SEGMENT}.log"
    rows = [
        json.loads(line) for line in dump("--print-data-log", "--json", log).stdout.splitlines()
    ]
    lines = dump("--print-data-log", log).stdout.splitlines()[1:]
    assert len(rows) == len(lines)
    for row, line in zip(rows, lines, strict=True):
        if row["kind"] == "record":
            assert (
                f"offset: {row['offset']} CreateTime: {row['CreateTime']} keySize: {row['keySize']}"
                in line
            )
        if row["kind"] == "batch":
            assert f"crc: {row['crc']} isvalid: true" in line and row["deleteHorizonMs"] is None


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A segment of three batches with its indexes."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    batches = [
        build_batch([Record(timestamp=1000 + number, value=b"v")] * 2, base_offset=2 * number)
        for number in range(3)
    ]
    (directory / f"{SEGMENT}.log").write_bytes(b"".join(batches))
    second = len(batches[0])
    (directory / f"{SEGMENT}.index").write_bytes(
        build_offset_index(0, [OffsetEntry(3, second), OffsetEntry(5, 2 * second)])
    )
    (directory / f"{SEGMENT}.timeindex").write_bytes(
        build_time_index(0, [TimeEntry(1001, 3), TimeEntry(1002, 5)])
    )
    return directory


def test_a_torn_tail_is_reported_after_the_batches_before_it(partition: Path) -> None:
    log = partition / f"{SEGMENT}.log"
    log.write_bytes(log.read_bytes()[:-5])
    said = dump(log)
    assert (
        said.stdout.splitlines()[-1]
        == f"Found {_tail(log)} invalid bytes at the end of {SEGMENT}.log"
    )
    assert said.stdout.count("baseOffset: ") == 2 and said.return_value == 1


def _tail(log: Path) -> int:
    whole = len(build_batch([Record(timestamp=1000, value=b"v")] * 2))
    return len(log.read_bytes()) - 2 * whole


@pytest.mark.parametrize(
    ("position", "value", "said", "shown"),
    [
        (70, 9, "The checksum of the batch at position 0 of", 3),
        (16, 9, "Corrupt batch at position 0 of", 2),
        (60, 9, "Corrupt records in the batch at position 0 of", 3),
        (11, 3, "Corrupt batch at position 0 of", 0),
    ],
)
def test_a_corrupt_batch_is_reported_and_the_others_are_shown(
    partition: Path, position: int, value: int, said: str, shown: int
) -> None:
    log = partition / f"{SEGMENT}.log"
    content = bytearray(log.read_bytes())
    content[position] = value
    log.write_bytes(content)
    done = dump("--deep-iteration", log)
    assert said in done.stderr and done.return_value == 1
    assert done.stdout.count("baseOffset: ") == shown


def test_indexes_that_fit_their_log_are_shown(partition: Path) -> None:
    said = dump(partition / f"{SEGMENT}.index", partition / f"{SEGMENT}.timeindex")
    assert [line for line in said.stdout.splitlines() if "Dumping" not in line] == [
        "offset: 3 position: 77",
        "offset: 5 position: 154",
        "timestamp: 1001 offset: 3",
        "timestamp: 1002 offset: 5",
    ]
    assert (said.stderr, said.return_value) == ("", 0)


@pytest.mark.parametrize("options", [[], ["--verify-index-only"]])
def test_index_mismatches_are_reported(partition: Path, options: list[str]) -> None:
    """With the messages of Kafka's tool; tests/inspect/test_apache_files.py compares them with
    it.
    """
    (partition / f"{SEGMENT}.index").write_bytes(
        build_offset_index(0, [OffsetEntry(2, 77), OffsetEntry(5, 154)])
    )
    (partition / f"{SEGMENT}.timeindex").write_bytes(
        build_time_index(0, [TimeEntry(1001, 3), TimeEntry(1000, 5), TimeEntry(2000, 9)])
    )
    said = dump(*options, partition / f"{SEGMENT}.index", partition / f"{SEGMENT}.timeindex")
    assert [line.replace(str(partition), "") for line in said.stderr.splitlines()] == [
        f"Mismatches in :/{SEGMENT}.index",
        "  Index offset: 2, log offset: 3",
        f"Found timestamp mismatch in :/{SEGMENT}.timeindex",
        "  Index timestamp: 1000, log timestamp: 1002",
        f"Found out of order timestamp in :/{SEGMENT}.timeindex",
        "  Index timestamp: 1000, Previously indexed timestamp: 1001",
        "The following indexed offsets are not found in the log.",
        "Indexed offset: 9, found log offset: -1",
    ]
    assert said.return_value == 1
    assert ("position:" in said.stdout) == (not options)


def test_an_index_without_its_log_is_shown(partition: Path) -> None:
    (partition / f"{SEGMENT}.log").unlink()
    said = dump(partition / f"{SEGMENT}.index")
    assert (
        "offset: 5 position: 154" in said.stdout
        and f"{SEGMENT}.log is not there" in said.stderr
        and said.return_value == 1
    )


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("leader-epoch-checkpoint", b"0\n2\n0 0\n", "leader-epoch-checkpoint"),
        ("quorum-state", b"{", "quorum-state"),
        (f"{SEGMENT}.snapshot", b"\x00\x01\x00", "producer snapshot"),
        (f"{SEGMENT}.txnindex", b"\x00" * 33, "transaction index"),
        ("meta.properties", b"version=1\n", "meta.properties"),
        ("notes.md", b"", "Ignoring unknown file"),
    ],
)
def test_a_broken_or_unknown_small_file_is_reported(
    tmp_path: Path, name: str, content: bytes, complaint: str
) -> None:
    (tmp_path / name).write_bytes(content)
    said = dump(tmp_path / name)
    assert complaint in said.stderr and said.return_value == 1


def test_old_message_formats_are_shown_as_by_dump_log_segments(tmp_path: Path) -> None:
    """The brace after the checksum is Kafka's; tests/inspect/test_apache_files.py compares
    everything with the tool.
    """
    log = tmp_path / f"{SEGMENT}.log"
    records = [Record(0, 1000, b"k", b"one"), Record(1, 2000, b"k", b"two")]
    log.write_bytes(build_message_set(records, magic=1, compression=Compression.GZIP))
    lines = dump("--print-data-log", log).stdout.splitlines()
    assert lines[2].startswith("offset: 1 position: 0 CreateTime: 2000 size: ")
    assert [line.partition(" isValid: true crc: ")[0] for line in lines[3:]] == [
        "| offset: 0 CreateTime: 1000 keySize: 1 valueSize: 3",
        "| offset: 1 CreateTime: 2000 keySize: 1 valueSize: 3",
    ]
    assert lines[-1].endswith("} key: k payload: two")


def test_the_path_selects_the_record_decoder_unless_given(tmp_path: Path) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    shutil.copy(WRITTEN_BY_KAFKA / "__cluster_metadata-0" / f"{SEGMENT}.log", directory)
    assert '"type":"TOPIC_RECORD"' in dump("--print-data-log", directory).stdout
    as_text = dump("--text-decoder", directory).stdout
    assert "TOPIC_RECORD" not in as_text and "\\x01" in as_text, (
        "and control characters are escaped"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (1.5, "1.5"),
        (100.0, "100.0"),
        (0.001, "0.001"),
        (0.00025, "2.5E-4"),
        (9999999.0, "9999999.0"),
        (10485760.0, "1.048576E7"),
        (1e21, "1.0E21"),
        (-12345678.9, "-1.23456789E7"),
    ],
)
def test_doubles_are_formatted_as_in_java(value: float, text: str) -> None:
    """Quotas of the metadata log are doubles.   Source: java.lang.Double.toString."""
    assert java_double(value) == text
    assert json_text({"a": [value, "ü\n", None, True]}) == f'{{"a":[{text},"ü\\n",null,true]}}'
