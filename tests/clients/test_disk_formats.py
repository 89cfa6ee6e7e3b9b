"""Apache Kafka reads our directories, and kraftsim reads Apache Kafka's: the same files in the same
format.
"""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kraftsim.partitions.log import PartitionLog
from kraftsim.partitions.log_reading import searched
from kraftsim.world.real.world import real_world
from protocol.metadata.registry import parse_record
from protocol.records.batches import RecordBatch, split_batches
from protocol.storage.text_files import parse_leader_epoch_checkpoint, parse_meta_properties
from tests.apache_kafka.class_path import DEFAULT_RELEASE, class_path
from tests.apache_kafka.harness import ApacheKafka, dump_log, run_tool
from tests.cluster.broker_client import broker_client
from tests.cluster.running import QUICK_SESSIONS, running_processes

pytestmark = pytest.mark.interop
TOPIC = "written"
ADOPTED = "adopted"
SEGMENT = "00000000000000000000"
SEGMENT_BYTES = "20000"
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
WRONG = (
    "Mismatches",
    "mismatch",
    "out of order",
    "Exception",
    "isvalid: false",
    "corrupt",
    "ERROR",
    "Found ",
    "unreadable",
    "Failed",
)


@pytest.fixture(scope="module", autouse=True)
def require_java() -> Iterator[None]:
    class_path()
    yield


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a cluster of ours that was stopped cleanly, with several segments in every
    compression.
    """
    root = tmp_path_factory.mktemp("ours") / "run"
    with running_processes(root, settings={"log.segment.bytes": SEGMENT_BYTES}) as cluster:
        with broker_client(cluster.bootstrap) as broker:
            broker.create_topic(TOPIC)
        write(cluster.bootstrap)
    return root / "data"


@pytest.fixture(scope="module")
def apache() -> Iterator[ApacheKafka]:
    """A node of Apache Kafka that wrote the same records, and was killed; it has a second topic
    that is still empty.
    """
    with ApacheKafka(settings={**QUICK_SESSIONS, "log.segment.bytes": SEGMENT_BYTES}) as node:
        for topic in (TOPIC, ADOPTED):
            node.tool(
                "topics",
                "--create",
                "--topic",
                topic,
                "--partitions",
                "1",
                "--replication-factor",
                "1",
            )
        write(node.bootstrap)
        node.stop(cleanly=False)
        yield node


def write(bootstrap: str) -> None:
    """Write 500 records in each compression, numbered consecutively."""
    for turn, compression in enumerate(COMPRESSIONS):
        producer = Producer(
            {
                "log_level": 0,
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "compression.type": compression,
                "linger.ms": 5,
                "batch.size": 6000,
            }
        )
        for number in range(500):
            count = turn * 500 + number
            producer.produce(
                TOPIC,
                value_of(count),
                b"%d" % count,
                0,
                timestamp=1_700_000_000_000 + count,
                headers=[("h", b"1")],
            )
        assert producer.flush(30) == 0


def value_of(count: int) -> bytes:
    """An incompressible text."""
    return hashlib.sha256(b"%d" % count).hexdigest().encode()


EXPECTED = [(b"%d" % count, value_of(count)) for count in range(2500)]


def records_of(batches: list[RecordBatch]) -> list[tuple[bytes, bytes]]:
    return [
        (bytes(record.key or b""), bytes(record.value or b""))
        for batch in batches
        for record in batch.records()
    ]


def read_through(log: PartitionLog) -> list[RecordBatch]:
    """Read as a consumer does; a read ends at the end of its segment."""
    batches: list[RecordBatch] = []
    while not batches or batches[-1].next_offset < log.log_end_offset:
        position = batches[-1].next_offset if batches else 0
        batches += split_batches(bytes(log.read(position, 1 << 20, log.log_end_offset)))
    return batches


def test_apache_kafka_reads_our_partition_log_and_its_indexes(ours: Path) -> None:
    """DumpLogSegments checks every batch, and every index entry against the log."""
    directory = ours / "broker-1" / f"{TOPIC}-0"
    segments = sorted(directory.glob("*.log"))
    assert len(segments) > 2
    said = dump_log(*segments, *sorted(directory.glob("*index")))
    assert said.count("| offset: ") == 2500
    assert not [word for word in WRONG if word in said]
    indexed = [
        line for line in said.splitlines() if line.startswith("offset: ") and "position:" in line
    ]
    timed = [line for line in said.splitlines() if line.startswith("timestamp: ")]
    assert len(indexed) >= len(segments) and len(timed) >= len(segments), "the indexes have entries"


def test_apache_kafka_reads_our_metadata_log(ours: Path) -> None:
    said = dump_log(
        ours / "controller-101" / "__cluster_metadata-0" / f"{SEGMENT}.log", metadata=True
    )
    wanted = (
        "LEADER_CHANGE(2)",
        "FEATURE_LEVEL_RECORD",
        "REGISTER_BROKER_RECORD",
        "BROKER_REGISTRATION_CHANGE_RECORD",
        "TOPIC_RECORD",
    )
    assert all(
        kind in said
        for kind in (*wanted, "PARTITION_RECORD", "PRODUCER_IDS_RECORD", f'"name":"{TOPIC}"')
    )
    assert "partitionLeaderEpoch: 1" in said and not [word for word in WRONG if word in said]


def test_our_log_reads_a_partition_that_apache_kafka_wrote(
    apache: ApacheKafka, tmp_path: Path
) -> None:
    """Segments, epochs, identity and metadata; a partition log of ours is opened on them."""
    shutil.copytree(apache.data, tmp_path / "data")
    world = real_world(
        run="test",
        node="broker-1",
        incarnation=1,
        data_dir=tmp_path / "data",
        events_dir=tmp_path / "events",
        seed=1,
    )
    replayed: list[RecordBatch] = []
    log = PartitionLog(world, TOPIC, 0)
    recovered = log.recover(lambda batch: replayed.append(RecordBatch(bytes(batch.view()))))
    assert (recovered.next_offset, recovered.truncated_bytes) == (2500, 0)
    assert records_of(replayed) == EXPECTED
    assert len({batch.producer_id for batch in replayed}) == 5
    assert records_of(read_through(log)) == EXPECTED
    first_after = next(split_batches(bytes(log.read(1234, 10, 2500))))
    assert first_after.base_offset <= 1234 <= first_after.last_offset
    found = searched(log.find_timestamp(1_700_000_000_000 + 1700, 2500))
    assert found is not None and found.offset == 1700
    log.abort()
    world.close()
    segments = sorted((tmp_path / "data" / f"{TOPIC}-0").glob("*.log"))
    assert len(segments) > 2
    assert (
        records_of([batch for segment in segments for batch in split_batches(segment.read_bytes())])
        == EXPECTED
    )
    assert (
        len(
            parse_leader_epoch_checkpoint(
                (tmp_path / "data" / f"{TOPIC}-0" / "leader-epoch-checkpoint").read_bytes()
            )
        )
        == 1
    )
    assert parse_meta_properties((tmp_path / "data" / "meta.properties").read_bytes()).node_id == 1
    metadata = split_batches(
        (tmp_path / "data" / "__cluster_metadata-0" / f"{SEGMENT}.log").read_bytes()
    )
    kinds = {
        type(parse_record(bytes(record.value or b""))).__name__
        for batch in metadata
        if not batch.is_control
        for record in batch.records()
    }
    assert {
        "RegisterBrokerRecord",
        "TopicRecord",
        "PartitionRecord",
        "ProducerIdsRecord",
        "FeatureLevelRecord",
    } <= kinds


def test_apache_kafka_serves_a_partition_that_we_wrote(ours: Path, apache: ApacheKafka) -> None:
    """A broker of Apache Kafka loads our segments, rebuilds its indexes, and its consumer reads
    every record.
    """
    directory = apache.data / f"{ADOPTED}-0"
    for file in directory.iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    for file in (ours / "broker-1" / f"{TOPIC}-0").iterdir():
        if file.name != "partition.metadata":
            shutil.copy(file, directory)
    apache.start()
    words = (
        "--topic",
        ADOPTED,
        "--partition",
        "0",
        "--offset",
        "earliest",
        "--max-messages",
        "2500",
        "--timeout-ms",
        "30000",
    )
    read = apache.tool(
        "console-consumer", *words, "--property", "print.key=true", "--property", "key.separator= "
    )
    assert [tuple(line.encode().split(b" ", 1)) for line in read.splitlines()] == EXPECTED


def test_the_dump_tool_would_notice_damage(ours: Path, tmp_path: Path) -> None:
    """The checks above can fail: one flipped bit is reported as invalid."""
    damaged = tmp_path / f"{SEGMENT}.log"
    content = bytearray((ours / "broker-1" / f"{TOPIC}-0" / f"{SEGMENT}.log").read_bytes())
    content[100] ^= 1
    damaged.write_bytes(content)
    said = run_tool(DEFAULT_RELEASE, "dump-log", "--files", str(damaged))
    assert [word for word in WRONG if word in said]
