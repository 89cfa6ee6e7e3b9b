"""Apache Kafka 3.9.1 with its LocalTieredStorage compared with kraftsim: the same responses, file
names and records.
"""

import subprocess
from pathlib import Path

import pytest

from kraftsim.tiered_storage.rules_segments import (
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
    metadata_partition,
    parse_metadata,
    segment_record,
    update_record,
)
from protocol.errors import ErrorCode
from protocol.records.batches import build_batch, split_batches
from protocol.records.record import Record
from protocol.storage.producer_snapshot import parse_producer_rows
from protocol.storage.text_files import EpochStart, parse_leader_epoch_checkpoint
from tests.apache_kafka.class_path import class_path, java
from tests.apache_kafka.harness import ApacheKafka
from tests.apache_kafka.tiered import tiered_settings
from tests.tiered_storage.real_broker_client import BrokerClient

pytestmark = pytest.mark.interop
TOPIC, METADATA_TOPIC = "tiered", "__remote_log_metadata"
SEGMENTS = 4
CONFIGS = {
    "remote.storage.enable": "true",
    "segment.bytes": "1000",
    "local.retention.bytes": "1",
    "index.interval.bytes": "1",
    "retention.ms": "-1",
}


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> object:
    """An Apache Kafka broker that has copied four segments of two records each to a directory."""
    store = tmp_path_factory.mktemp("store")
    with ApacheKafka(settings=tiered_settings(store)) as kafka:
        requester = BrokerClient("127.0.0.1", kafka.port, TOPIC)
        requester.create(CONFIGS)
        for index in range(2 * SEGMENTS + 1):
            batch = build_batch(
                [Record(0, 1000 + index, None, b"x" * 400, ())],
                producer_id=7,
                producer_epoch=0,
                base_sequence=index,
            )
            assert requester.produce(batch)[0] is ErrorCode.NONE
        requester.wait_for_local_start(2 * SEGMENTS)
        yield requester, store


def test_apache_kafka_gives_the_same_answers(apache: tuple[BrokerClient, Path]) -> None:
    """ListOffsets -2, -4, -5 and timestamps; Fetch of remote-only offsets, by consumers and by
    followers.
    """
    requester, _ = apache
    assert [requester.list_offset(kind) for kind in (-2, -4, -5, -1)] == [
        (0, 0),
        (8, 0),
        (7, 0),
        (9, 0),
    ]
    assert [requester.list_offset(1000 + index)[0] for index in range(9)] == list(range(9))
    assert [batch.base_offset for batch in split_batches(requester.fetch(0))] == [0, 1]
    assert [batch.base_offset for batch in split_batches(requester.fetch(3))] == [3]
    assert [batch.base_offset for batch in split_batches(requester.fetch(8))] == [8]


def test_files_in_the_store_have_the_same_names_and_contents(
    apache: tuple[BrokerClient, Path],
) -> None:
    """kafka-tiered-storage/TOPIC-PARTITION-ID/OFFSET-ID.SUFFIX; the producer snapshot at the
    segment's end, the epochs before its end.
    """
    _, store = apache
    names = sorted(
        path.relative_to(store).as_posix() for path in store.rglob("*") if path.is_file()
    )
    suffixes = {".index", ".leader_epoch_checkpoint", ".log", ".snapshot", ".timeindex"}
    assert (
        len(names) == SEGMENTS * len(suffixes) and {Path(name).suffix for name in names} == suffixes
    )
    first = next(
        name
        for name in names
        if name.endswith(".snapshot") and Path(name).name.startswith(f"{0:020d}-")
    )
    assert Path(first).parent.name.startswith(f"{TOPIC}-0-")
    (row,) = parse_producer_rows((store / first).read_bytes())
    assert (row.producer_id, row.last_sequence, row.last_offset) == (7, 1, 1)
    epochs = (store / first).with_suffix(".leader_epoch_checkpoint")
    assert parse_leader_epoch_checkpoint(epochs.read_bytes()) == [EpochStart(0, 0)]


def test_records_of_the_metadata_topic_are_equivalent(apache: tuple[BrokerClient, Path]) -> None:
    """A started and a finished copy per segment, in the partition of the same hash."""
    requester, _ = apache
    records = []
    for number in range(2):
        reader = BrokerClient(requester.host, requester.port, METADATA_TOPIC)
        for batch in split_batches(reader.fetch(0, number)):
            records += [
                (number, parse_metadata(record.value or b""), record.value)
                for record in batch.records()
            ]
    started = [
        (number, each, value) for number, each, value in records if isinstance(each, RemoteSegment)
    ]
    updates = [each for _, each, _ in records if isinstance(each, SegmentUpdate)]
    assert [(each.start_offset, each.end_offset, each.leader_epochs) for _, each, _ in started] == [
        (2 * index, 2 * index + 1, (EpochStart(0, 2 * index),)) for index in range(SEGMENTS)
    ]
    assert {each.state for each in updates} == {SegmentState.COPY_SEGMENT_FINISHED} and len(
        updates
    ) == SEGMENTS
    assert all(metadata_partition(each.owner, 2) == number for number, each, _ in started)
    assert all(segment_record(each) == value for _, each, value in started), (
        "written by kraftsim they are the same bytes"
    )


ORACLE = """
import java.util.*;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
public class Oracle {
  public static void main(String[] words) {
    RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
    for (String word : words) System.out.println(serde.deserialize(HexFormat.of().parseHex(word)));
  }
}
"""


def test_apache_kafkas_serde_reads_our_records(tmp_path: Path) -> None:
    """RemoteLogMetadataSerde of the jar, with kraftsim's bytes."""
    owner = TopicIdPartition(b"0123456789abcdef", 3, "some.topic")
    segment = RemoteSegment(
        segment_id=b"fedcba9876543210",
        owner=owner,
        start_offset=100,
        end_offset=250,
        max_timestamp_ms=77,
        broker_id=5,
        event_timestamp_ms=88,
        size_bytes=4096,
        leader_epochs=(EpochStart(2, 100), EpochStart(4, 180)),
        custom_metadata=b"abc",
        is_transaction_index_empty=True,
    )
    gone = SegmentUpdate(
        segment_id=segment.segment_id,
        owner=owner,
        broker_id=6,
        event_timestamp_ms=99,
        state=SegmentState.DELETE_SEGMENT_STARTED,
    )
    jars = ":".join(str(jar) for jar in class_path())
    source = tmp_path / "Oracle.java"
    source.write_text(ORACLE)
    command = [
        str(java()),
        "-cp",
        jars,
        str(source),
        segment_record(segment).hex(),
        update_record(gone).hex(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    first, second = [
        line for line in done.stdout.splitlines() if line.startswith("RemoteLogSegmentMetadata")
    ]
    for word in (
        "some.topic-3",
        "startOffset=100",
        "endOffset=250",
        "brokerId=5",
        "maxTimestampMs=77",
        "eventTimestampMs=88",
        "2=100",
        "4=180",
    ):
        assert word in first
    assert "segmentSizeInBytes=4096" in first and "COPY_SEGMENT_STARTED" in first
    assert "DELETE_SEGMENT_STARTED" in second and "brokerId=6" in second
