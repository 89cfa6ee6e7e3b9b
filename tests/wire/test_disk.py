"""The files of a log directory, compared with one written by Apache Kafka 3.9.1 (kafka_3_9_1)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from protocol.malformed import MalformedFile
from protocol.metadata.registry import build_record
from protocol.metadata.settings import FeatureLevelRecord
from protocol.records.batches import split_batches
from protocol.storage.file_names import (
    PRODUCER_SNAPSHOT,
    metadata_snapshot_name,
    parse_metadata_snapshot_name,
    parse_partition_directory_name,
    parse_segment_file_name,
    partition_directory_name,
    segment_file_name,
)
from protocol.storage.indexes import (
    AbortedTransaction,
    OffsetEntry,
    TimeEntry,
    build_offset_index,
    build_time_index,
    build_transaction_index,
    parse_offset_index,
    parse_time_index,
    parse_transaction_index,
)
from protocol.storage.metadata_snapshot import build_metadata_snapshot, parse_metadata_snapshot
from protocol.storage.producer_snapshot import (
    CRC_BYTES,
    ProducerSnapshotEntry,
    build_producer_rows,
    build_producer_snapshot,
    parse_producer_rows,
    parse_producer_snapshot,
)
from protocol.storage.quorum_state import (
    DYNAMIC_VOTERS_VERSION,
    QuorumState,
    QuorumVoter,
    build_quorum_state,
    parse_quorum_state,
)
from protocol.storage.text_files import (
    EpochStart,
    MetaProperties,
    build_clean_shutdown,
    build_leader_epoch_checkpoint,
    build_meta_properties,
    build_offset_checkpoint,
    build_partition_metadata,
    parse_clean_shutdown,
    parse_leader_epoch_checkpoint,
    parse_meta_properties,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from protocol.uuids import METADATA_TOPIC_ID, parse_uuid_text, uuid_text

GOLDEN = Path(__file__).parent / "kafka_3_9_1"
METADATA_LOG = "__cluster_metadata-0"
DIRECTORY_ID = bytes(range(16))

Parse = Callable[[bytes], Any]
Build = Callable[[Any], bytes]

ROUND_TRIPS: list[tuple[str, Parse, Build]] = [
    ("kafka_cleanshutdown", parse_clean_shutdown, build_clean_shutdown),
    ("recovery-point-offset-checkpoint", parse_offset_checkpoint, build_offset_checkpoint),
    ("replication-offset-checkpoint", parse_offset_checkpoint, build_offset_checkpoint),
    ("log-start-offset-checkpoint", parse_offset_checkpoint, build_offset_checkpoint),
    (f"{METADATA_LOG}/quorum-state", parse_quorum_state, build_quorum_state),
    (f"{METADATA_LOG}/partition.metadata", parse_partition_metadata, build_partition_metadata),
    (
        f"{METADATA_LOG}/leader-epoch-checkpoint",
        parse_leader_epoch_checkpoint,
        build_leader_epoch_checkpoint,
    ),
    ("golden-0/partition.metadata", parse_partition_metadata, build_partition_metadata),
    (
        "golden-0/leader-epoch-checkpoint",
        parse_leader_epoch_checkpoint,
        build_leader_epoch_checkpoint,
    ),
    ("golden-0/00000000000000000021.snapshot", parse_producer_snapshot, build_producer_snapshot),
    ("golden-0/00000000000000000024.snapshot", parse_producer_snapshot, build_producer_snapshot),
    ("golden-0/00000000000000000021.snapshot", parse_producer_rows, build_producer_rows),
    ("golden-0/00000000000000000024.snapshot", parse_producer_rows, build_producer_rows),
    (
        f"{METADATA_LOG}/00000000000000000152.snapshot",
        parse_producer_snapshot,
        build_producer_snapshot,
    ),
    ("golden-0/00000000000000000021.txnindex", parse_transaction_index, build_transaction_index),
    (
        f"{METADATA_LOG}/00000000000000000000.index",
        lambda data: parse_offset_index(0, data),
        lambda found: build_offset_index(0, found),
    ),
    (
        f"{METADATA_LOG}/00000000000000000000.timeindex",
        lambda data: parse_time_index(0, data),
        lambda found: build_time_index(0, found),
    ),
    (
        "golden-0/00000000000000000021.timeindex",
        lambda data: parse_time_index(21, data),
        lambda found: build_time_index(21, found),
    ),
]


@pytest.mark.parametrize("file, parse, build", ROUND_TRIPS, ids=[row[0] for row in ROUND_TRIPS])
def test_a_file_of_apache_kafka_is_read_and_written_byte_for_byte(
    file: str, parse: Parse, build: Build
) -> None:
    data = (GOLDEN / file).read_bytes()
    assert build(parse(data)) == data


def is_insignificant(data: bytes, damaged: bytes) -> bool:
    """Return whether damage does not change the content: the last line break, an empty file without
    entries, an ignored JSON member, the four bits of the last character of an id that
    java.util.Base64 ignores.
    """
    is_without_last_break = data.endswith(b"\n") and damaged == data[:-1]
    lists_nothing = damaged == b"" and data == b"0\n0\n"
    is_other_member = data.startswith(b'{"version":') and damaged.endswith(b',"brokerEpoch":6}')
    is_other_padding = (
        data.startswith(b"version: 0\ntopic_id: ")
        and len(damaged) == len(data)
        and damaged[:-1] == data[:-1]
        and damaged[-1:] in b"wxyz0123456789-_"
    )
    return is_without_last_break or lists_nothing or is_other_member or is_other_padding


def damages(data: bytes) -> Iterator[bytes]:
    """Yield a file truncated at every position, with every byte replaced by another one and by a
    digit, and with bytes inserted at every position.
    """
    for position in range(len(data) + 1):
        before, behind = data[:position], data[position:]
        yield before
        for byte in (b"\xff", b"7"):
            yield before + byte + behind[1:]
        for more in (b"x", b"\nx"):
            yield before + more + behind


def all_read(found: Any) -> Any:
    """Return the parsed value; for a generator, a list of its values: two iterators are never
    equal.
    """
    return list(found) if isinstance(found, Iterator) else found


@pytest.mark.parametrize(
    "file, parse", [row[:2] for row in ROUND_TRIPS], ids=[row[0] for row in ROUND_TRIPS]
)
def test_a_damaged_file_is_refused_or_read_with_other_content(file: str, parse: Parse) -> None:
    """No relevant damage is undetected, and none raises anything but MalformedFile.

    A file with a checksum is refused.
    """
    data = (GOLDEN / file).read_bytes()
    intact = all_read(parse(data))
    for damaged in damages(data):
        if damaged == data or is_insignificant(data, damaged):
            continue
        try:
            found = all_read(parse(damaged))
        except MalformedFile:
            continue
        assert not file.endswith(PRODUCER_SNAPSHOT), (
            f"damage is not detected by the checksum: {damaged!r}"
        )
        assert found != intact, f"damage is not detected: {damaged!r}"


def test_a_producer_snapshot_with_more_than_it_counts_is_refused() -> None:
    """Its checksum is correct; so it was written by a faulty program, not damaged by a disk."""
    data = (GOLDEN / "golden-0" / "00000000000000000021.snapshot").read_bytes()
    counted = data[CRC_BYTES.stop :] + bytes(8)
    longer = data[: CRC_BYTES.start] + crc32c(counted).to_bytes(4) + counted
    for parse in (parse_producer_snapshot, parse_producer_rows):
        with pytest.raises(MalformedFile):
            parse(longer)


def test_golden_files_have_the_expected_content() -> None:
    """The values themselves, not only the round trip: producer ids, offsets, epochs."""
    elected = QuorumState(leader_id=1, leader_epoch=1, current_voters=[QuorumVoter(voter_id=1)])
    assert parse_quorum_state((GOLDEN / METADATA_LOG / "quorum-state").read_bytes()) == elected
    assert parse_clean_shutdown((GOLDEN / "kafka_cleanshutdown").read_bytes()) == 6
    assert (
        parse_partition_metadata((GOLDEN / METADATA_LOG / "partition.metadata").read_bytes())
        == METADATA_TOPIC_ID
    )
    assert parse_leader_epoch_checkpoint(
        (GOLDEN / METADATA_LOG / "leader-epoch-checkpoint").read_bytes()
    ) == [EpochStart(1, 0)]
    assert (
        parse_offset_checkpoint((GOLDEN / "replication-offset-checkpoint").read_bytes())[
            "golden", 0
        ]
        == 24
    )
    producers = parse_producer_snapshot(
        (GOLDEN / "golden-0" / "00000000000000000021.snapshot").read_bytes()
    )
    assert [producer.producer_id for producer in producers] == [0, 1, 2, 3, 4, 5]
    assert [producer.last_offset for producer in producers] == [3, 7, 11, 15, 19, 20]
    assert producers[5].current_transaction_first_offset == 20
    aborted = parse_transaction_index(
        (GOLDEN / "golden-0" / "00000000000000000021.txnindex").read_bytes()
    )
    assert aborted == [
        AbortedTransaction(producer_id=5, first_offset=22, last_offset=23, last_stable_offset=24)
    ]


def test_an_offset_index_entry_has_the_position_of_its_batch() -> None:
    """The entry of a batch has its last offset and its start position (OffsetIndex,
    LogSegment.append).
    """
    entries = parse_offset_index(
        0, (GOLDEN / METADATA_LOG / "00000000000000000000.index").read_bytes()
    )
    log = (GOLDEN / METADATA_LOG / "00000000000000000000.log").read_bytes()
    batches = {batch.position: batch.last_offset for batch in split_batches(log)}
    assert entries and all(batches[entry.position] == entry.offset for entry in entries)


def test_meta_properties_are_written_in_java_properties_format() -> None:
    """Keys in the order of Java's hash table, after an empty comment and the date."""
    data = (GOLDEN / "meta.properties").read_bytes()
    date = data.splitlines()[1].removeprefix(b"#").decode()
    assert build_meta_properties(parse_meta_properties(data), date) == data
    assert parse_meta_properties(data).cluster_id == "AAAAAAAAAAAAAAAAAAAAAg"


@pytest.mark.parametrize(
    "meta, text",
    [
        (MetaProperties(cluster_id="c", node_id=1), "#\nnode.id=1\nversion=1\ncluster.id=c\n"),
        (
            MetaProperties(version=0, cluster_id="c", node_id=1),
            "#\nbroker.id=1\nversion=0\ncluster.id=c\n",
        ),
        (MetaProperties(version=0), "#\nversion=0\n"),
        (
            MetaProperties(cluster_id="c", node_id=7, directory_id=DIRECTORY_ID),
            "#\nnode.id=7\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\nversion=1\ncluster.id=c\n",
        ),
    ],
)
def test_meta_properties_of_both_versions_are_read(meta: MetaProperties, text: str) -> None:
    assert build_meta_properties(meta).decode() == text
    assert parse_meta_properties(text.encode()) == meta


def test_the_bootstrap_checkpoint_has_feature_levels() -> None:
    """The output of `kafka-storage format`; only timestamps and checksums differ from ours."""
    golden = (GOLDEN / "bootstrap.checkpoint").read_bytes()
    values = [build_record(FeatureLevelRecord(name="metadata.version", feature_level=21), 0)]
    ours = build_metadata_snapshot(values, timestamp=1_700_000_000_000)
    assert parse_metadata_snapshot(golden) == parse_metadata_snapshot(ours)
    for our_batch, golden_batch in zip(split_batches(ours), split_batches(golden), strict=True):
        assert bytes(our_batch.view()[61:]) == bytes(golden_batch.view()[61:])
        assert (
            our_batch.base_offset == golden_batch.base_offset
            and our_batch.attributes == golden_batch.attributes
        )
        assert our_batch.partition_leader_epoch == golden_batch.partition_leader_epoch == 0


def test_a_snapshot_without_its_footer_is_refused() -> None:
    data = (GOLDEN / "bootstrap.checkpoint").read_bytes()
    ends = [batch.position for batch in split_batches(data)]
    for damaged in (
        data[: ends[-1]],
        data[ends[1] :],
        data[:-1],
        b"",
        data + data,
        data[:-1] + b"\x01",
    ):
        with pytest.raises(MalformedFile):
            parse_metadata_snapshot(damaged)


def test_a_producer_snapshot_is_built_byte_for_byte() -> None:
    """Test vectors: an empty snapshot, and one producer."""
    assert build_producer_snapshot([]).hex() == "000148674bc700000000"
    entry = ProducerSnapshotEntry(
        producer_id=4000,
        producer_epoch=3,
        last_sequence=9,
        last_offset=109,
        offset_delta=4,
        timestamp=1_700_000_000_000,
        coordinator_epoch=-1,
    )
    built = build_producer_snapshot([entry])
    assert built.hex() == (
        "000136dae8fb000000010000000000000fa0000300000009000000000000006d000000040000018bcfe56800ffffffffffffffffffffffff"
    )
    assert parse_producer_snapshot(built) == [entry]
    with pytest.raises(MalformedFile, match="checksum"):
        parse_producer_snapshot(built[:-1] + b"\x00")


def test_a_transaction_index_entry_is_built_byte_for_byte() -> None:
    entry = AbortedTransaction(
        producer_id=4000, first_offset=100, last_offset=110, last_stable_offset=111
    )
    assert (
        build_transaction_index([entry]).hex()
        == "00000000000000000fa00000000000000064000000000000006e000000000000006f"
    )


def test_index_offsets_are_relative_to_their_segment() -> None:
    assert build_offset_index(1000, [OffsetEntry(1005, 4096)]) == bytes.fromhex("0000000500001000")
    assert build_time_index(1000, [TimeEntry(1_700_000_000_000, 1007)]) == bytes.fromhex(
        "0000018bcfe56800 00000007"
    )


@pytest.mark.parametrize(
    "parse, data",
    [
        (lambda data: parse_offset_index(0, data), bytes(7)),
        (lambda data: parse_offset_index(0, data), bytes(16)),
        (lambda data: parse_time_index(0, data), bytes(11)),
        (lambda data: parse_time_index(0, data), b"\x01" * 12 + bytes(12)),
        (parse_transaction_index, bytes(33)),
        (parse_transaction_index, b"\x01" + bytes(33)),
        (parse_leader_epoch_checkpoint, b"0\n2\n1 0\n"),
        (parse_leader_epoch_checkpoint, b"1\n0\n"),
        (parse_leader_epoch_checkpoint, b"0\n1\none 0\n"),
        (parse_offset_checkpoint, b"0\n1\ntopic 0\n"),
        (parse_offset_checkpoint, b"0\n1\ntopic x 5\n"),
        (parse_meta_properties, b"version=1\nnode.id=1\n"),
        (parse_meta_properties, b"version=2\nnode.id=1\ncluster.id=c\n"),
        (parse_meta_properties, b"version=1\nnode.id=one\ncluster.id=c\n"),
        (parse_meta_properties, b"version=1\nnode.id=1\ncluster.id=c\ndirectory.id=short\n"),
        (parse_quorum_state, b""),
        (parse_quorum_state, b"[]"),
        (parse_quorum_state, b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"data_version":2}'),
        (parse_quorum_state, b'{"leaderEpoch":1,"votedId":-1,"data_version":0}'),
        (parse_partition_metadata, b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"),
        (parse_partition_metadata, b"version: 0\ntopic_id: AAAA"),
        (parse_clean_shutdown, b"{}"),
    ],
)
def test_content_that_kafka_never_writes_is_refused(parse: Parse, data: bytes) -> None:
    with pytest.raises(MalformedFile):
        parse(data)


def test_dynamic_quorum_state_has_the_voted_directory_id() -> None:
    """data_version 1 (KIP-853)."""
    state = QuorumState(leader_epoch=5, voted_id=3, voted_directory_id=DIRECTORY_ID)
    built = build_quorum_state(state, DYNAMIC_VOTERS_VERSION)
    assert built == (
        b'{"leaderId":-1,"leaderEpoch":5,"votedId":3,'
        b'"votedDirectoryId":"AAECAwQFBgcICQoLDA0ODw","data_version":1}'
    )
    assert parse_quorum_state(built) == state


def test_a_clean_shutdown_marker_from_before_3_7_is_empty() -> None:
    assert build_clean_shutdown(None) == b"" and parse_clean_shutdown(b"") == -1


def test_file_and_directory_names_are_parsed() -> None:
    assert segment_file_name(42) == "00000000000000000042.log"
    assert parse_segment_file_name("00000000000000000042.snapshot") == (42, PRODUCER_SNAPSHOT)
    assert metadata_snapshot_name(42, 3) == "00000000000000000042-0000000003.checkpoint"
    assert parse_metadata_snapshot_name("00000000000000000042-0000000003.checkpoint") == (42, 3)
    assert partition_directory_name(
        "my-topic", 3
    ) == "my-topic-3" and parse_partition_directory_name("my-topic-3") == ("my-topic", 3)
    for other in (
        "42.log",
        "00000000000000000042.log.deleted",
        "leader-epoch-checkpoint",
        "00000000000000000042-0000000003.checkpoint.part",
    ):
        assert (
            parse_segment_file_name(other) is None and parse_metadata_snapshot_name(other) is None
        )
    assert parse_partition_directory_name("orders-3.0123456789abcdef-delete") is None


@pytest.mark.parametrize(
    "raw, text",
    [(METADATA_TOPIC_ID, "AAAAAAAAAAAAAAAAAAAAAQ"), (b"\xff" * 16, "_____________________w")],
)
def test_uuids_are_formatted_as_in_kafka(raw: bytes, text: str) -> None:
    assert uuid_text(raw) == text and parse_uuid_text(text) == raw


@pytest.mark.parametrize(
    "text", ["", "AAAA", "AAAAAAAAAAAAAAAAAAAAAQAA", "AAAAAAAAAAAAAAAAAAAA+/", "€" * 22]
)
def test_an_invalid_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a uuid"):
        parse_uuid_text(text)
