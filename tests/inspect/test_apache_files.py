"""`kraftsim dump` compared with Apache Kafka's DumpLogSegments, line by line: on files of Apache
Kafka, on ours, and on corrupt ones.

Intentional differences: control characters in keys and values are escaped; the partitions of a
transaction are in the order of the record (Kafka's tool has that of a Scala hash set); remote log
metadata is JSON (Kafka's tool prints the Java toString); a corrupt batch is reported, and the next
one read, where Kafka's tool fails with an exception.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kraftsim.cli.main import kraftsim
from protocol.metadata.registry import build_record
from protocol.metadata.settings import ClientQuotaRecord, EntityData
from protocol.records.batches import build_batch
from protocol.records.control_records import (
    ControlType,
    KRaftVersionFeature,
    KRaftVersionRecord,
    RegisteredVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    build_control_batch,
)
from protocol.records.message_sets import build_message_set
from protocol.records.record import Compression, Record
from protocol.storage.indexes import (
    OffsetEntry,
    TimeEntry,
    build_offset_index,
    build_time_index,
)
from tests.apache_kafka.class_path import DEFAULT_RELEASE, class_path
from tests.apache_kafka.harness import ApacheKafka, run_java
from tests.cluster.broker_client import broker_client
from tests.cluster.running import running_processes
from tests.inspect.apache_files import SETTINGS, files_of, write_everything

pytestmark = pytest.mark.interop
SEGMENT = "00000000000000000000"
TOPICS = {
    "--cluster-metadata-decoder": "__cluster_metadata",
    "--offsets-decoder": "__consumer_offsets",
    "--transaction-log-decoder": "__transaction_state",
}


@pytest.fixture(scope="module", autouse=True)
def require_java() -> Iterator[None]:
    class_path()
    yield


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a node of Apache Kafka that has written everything and was stopped."""
    data = tmp_path_factory.mktemp("theirs") / "data"
    with ApacheKafka(settings=SETTINGS) as node:
        write_everything(node.bootstrap)
        node.stop()
        shutil.copytree(node.data, data)
    return data


def kafkas(*arguments: str, files: list[Path]) -> tuple[list[str], list[str]]:
    """Return what Kafka's tool prints: lines of standard output, lines of standard error."""
    done = run_java(
        DEFAULT_RELEASE,
        "kafka.tools.DumpLogSegments",
        *arguments,
        "--files",
        ",".join(map(str, files)),
    )
    return done.stdout.splitlines(), done.stderr.splitlines()


def ours(*arguments: str, files: list[Path]) -> Result:
    return CliRunner().invoke(
        kraftsim, ["dump", *arguments, *map(str, files)], standalone_mode=False
    )


def assert_equal(*arguments: str, files: list[Path]) -> list[str]:
    """Check that both print the same lines, and return them."""
    assert files
    said, complained = kafkas(*arguments, files=files)
    done = ours(*arguments, files=files)
    assert done.stdout.splitlines() == said
    assert sorted(done.stderr.splitlines()) == sorted(complained)
    return said


def test_files_of_apache_kafka_are_dumped_as_by_dump_log_segments(theirs: Path) -> None:
    """Batches of every codec, aborted transactions, several segments, indexes, producer snapshots,
    metadata snapshots.
    """
    lines = assert_equal(files=files_of(theirs))
    text = "\n".join(lines)
    for trace in (
        "compresscodec: zstd",
        "isTransactional: true isControl: true",
        "lastStableOffset: ",
        "OptionalLong[",
        "Snapshot end offset: ",
    ):
        assert trace in text


def test_records_of_apache_kafka_are_printed_as_by_dump_log_segments(theirs: Path) -> None:
    files = [
        file
        for file in files_of(theirs)
        if not file.parent.name.startswith("__") and file.suffix != ".checkpoint"
    ]
    lines = assert_equal("--print-data-log", files=files)
    assert (
        sum("endTxnMarker: ABORT" in line for line in lines) == 3
        and sum("endTxnMarker: COMMIT" in line for line in lines) == 6
    )
    assert sum(line.startswith("| offset: ") for line in lines) > 1000


@pytest.mark.parametrize("decoder", TOPICS)
def test_internal_topics_are_decoded_as_by_dump_log_segments(theirs: Path, decoder: str) -> None:
    """Also without the option, because of the path of the files."""
    files = [file for file in files_of(theirs) if file.parent.name.startswith(TOPICS[decoder])]
    lines = assert_equal(decoder, files=files)
    assert sum(" payload: " in line for line in lines) > 5
    assert ours("--print-data-log", files=files).stdout.splitlines() == lines


@pytest.mark.parametrize(
    "options",
    [["--deep-iteration"], ["--print-data-log", "--skip-record-metadata"], ["--max-bytes", "9000"]],
)
def test_options_behave_as_in_dump_log_segments(theirs: Path, options: list[str]) -> None:
    files = sorted((theirs / "mixed-0").glob("*.log"))
    if "--max-bytes" in options:
        assert len(kafkas(*options, files=files)[0]) < len(kafkas(files=files)[0])
    assert_equal(*options, files=files)


@pytest.mark.parametrize("option", ["--verify-index-only", "--index-sanity-check"])
def test_indexes_are_verified_as_by_dump_log_segments(theirs: Path, option: str) -> None:
    files = [file for file in files_of(theirs) if file.suffix in (".index", ".timeindex")]
    assert_equal(option, files=files)


def test_index_mismatches_are_reported_as_by_dump_log_segments(tmp_path: Path) -> None:
    log, index, times = (
        tmp_path / f"{SEGMENT}{suffix}" for suffix in (".log", ".index", ".timeindex")
    )
    batches = [
        build_batch([Record(timestamp=1000 + number, value=b"v")] * 2, base_offset=2 * number)
        for number in range(3)
    ]
    log.write_bytes(b"".join(batches))
    second = len(batches[0])
    index.write_bytes(
        build_offset_index(0, [OffsetEntry(2, second), OffsetEntry(5, 2 * second)]) + bytes(32)
    )
    times.write_bytes(build_time_index(0, [TimeEntry(1001, 3), TimeEntry(1000, 5)]) + bytes(24))
    lines = assert_equal(files=[index, times])
    assert ours(files=[index, times]).stderr.count("Index ") == 3 and len(lines) > 4


def test_torn_tails_and_offset_gaps_are_reported_as_by_dump_log_segments(tmp_path: Path) -> None:
    log = tmp_path / f"{SEGMENT}.log"
    batches = [
        build_batch([Record(timestamp=1, value=b"v")], base_offset=offset) for offset in (0, 5, 6)
    ]
    log.write_bytes(b"".join(batches)[:-7])
    lines = assert_equal("--deep-iteration", files=[log])
    assert lines[-1] == f"Found {len(batches[0]) - 7} invalid bytes at the end of {log.name}"


def test_a_wrong_checksum_is_shown_as_by_dump_log_segments(tmp_path: Path) -> None:
    """Standard output is the same; kraftsim also reports the error on standard error."""
    log = tmp_path / f"{SEGMENT}.log"
    content = bytearray(build_batch([Record(timestamp=1, value=b"value")]))
    content[-2] ^= 1
    log.write_bytes(content)
    said, _ = kafkas(files=[log])
    done = ours(files=[log])
    assert done.stdout.splitlines() == said and "isvalid: false" in said[-1]
    assert done.return_value == 1 and "The checksum of the batch at position 0" in done.stderr


@pytest.mark.parametrize(
    "codec", [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
)
@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_printed_as_by_dump_log_segments(
    tmp_path: Path, magic: int, codec: Compression
) -> None:
    log = tmp_path / f"{SEGMENT}.log"
    records = [
        Record(number, 1000 + number, b"k" if number else None, b"v%d" % number)
        for number in range(3)
    ]
    log.write_bytes(build_message_set(records, magic=magic, compression=codec))
    assert_equal("--print-data-log", files=[log])


def test_voter_records_and_doubles_are_printed_as_by_dump_log_segments(tmp_path: Path) -> None:
    """Content that a node with a static quorum does not write: voters records, and quotas with
    exponents.
    """
    snapshot = tmp_path / f"{SEGMENT}-0000000000.checkpoint"
    voter = RegisteredVoter(
        voter_id=1,
        voter_directory_id=bytes(range(16)),
        k_raft_version_feature=KRaftVersionFeature(max_supported_version=1),
    )
    head = [
        (
            ControlType.SNAPSHOT_HEADER,
            SnapshotHeaderRecord(version=0, last_contained_log_timestamp=5),
        ),
        (ControlType.KRAFT_VERSION, KRaftVersionRecord(version=0, k_raft_version=1)),
        (ControlType.KRAFT_VOTERS, VotersRecord(version=0, voters=[voter])),
    ]
    quotas = [
        Record(
            timestamp=1,
            value=build_record(
                ClientQuotaRecord(entity=[EntityData(entity_type="user")], key="rate", value=value),
                0,
            ),
        )
        for value in (10485760.0, 0.5, 1e-5, 1.5e300, 0.0)
    ]
    foot = [(ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord(version=0))]
    snapshot.write_bytes(
        build_control_batch(head, base_offset=0, timestamp=1)
        + build_batch(quotas, base_offset=3)
        + build_control_batch(foot, base_offset=8, timestamp=1)
    )
    lines = assert_equal("--cluster-metadata-decoder", files=[snapshot])
    assert any("KRaftVoters" in line for line in lines) and any(
        "1.048576E7" in line for line in lines
    )


def test_files_of_our_nodes_are_dumped_the_same_by_both_tools(tmp_path: Path) -> None:
    """Segments and indexes of a broker, the metadata log of a controller."""
    with (
        running_processes(tmp_path / "run", settings={"log.segment.bytes": "3000"}) as cluster,
        broker_client(cluster.bootstrap) as broker,
    ):
        broker.create_topic("t")
        for number in range(30):
            batch = build_batch(
                [Record(timestamp=1000 + number, key=b"k", value=b"v" * 100)] * 3,
                producer_id=7,
                producer_epoch=0,
                base_sequence=3 * number,
            )
            assert broker.produce("t", batch).error_code == 0
    written = files_of(tmp_path / "run" / "data")
    metadata = [file for file in written if file.parent.name.startswith("__cluster_metadata")]
    assert len(assert_equal("--cluster-metadata-decoder", files=metadata)) > 10
    lines = assert_equal(
        "--print-data-log", files=[file for file in written if file not in metadata]
    )
    assert sum(line.startswith("| offset: ") for line in lines) == 90
