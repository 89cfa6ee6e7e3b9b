"""The target that reads files: any content gives a value or MalformedFile, and a value round-trips.

Checksums are corrected first if a file has one.
Source: none of Kafka's; the formats are those of protocol.storage.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crc32c import crc32c

from protocol.malformed import MalformedMessage
from protocol.storage.file_names import (
    parse_metadata_snapshot_name,
    parse_partition_directory_name,
    parse_segment_file_name,
)
from protocol.storage.indexes import (
    build_offset_index,
    build_time_index,
    build_transaction_index,
    parse_offset_index,
    parse_time_index,
    parse_transaction_index,
)
from protocol.storage.metadata_snapshot import parse_metadata_snapshot
from protocol.storage.producer_snapshot import (
    CRC_BYTES,
    build_producer_snapshot,
    parse_producer_snapshot,
)
from protocol.storage.quorum_state import (
    DYNAMIC_VOTERS_VERSION,
    QuorumState,
    build_quorum_state,
    parse_quorum_state,
)
from protocol.storage.text_files import (
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
from tools.fuzz.record_targets import with_right_checksums

GOLDEN = Path(__file__).parents[2] / "tests" / "wire" / "kafka_3_9_1"
METADATA_LOG = "__cluster_metadata-0"
BASE_OFFSET = 0
FILE_NAME_BYTES_MAX = 255
"""The limit of file systems."""


@dataclass(frozen=True, slots=True)
class FileKind:
    """How a kind of file is read and written, and samples written by Apache Kafka."""

    parse: Callable[[bytes], Any]
    build: Callable[[Any], bytes] | None
    files: tuple[str, ...] = ()
    heal: Callable[[bytes], bytes] | None = None


def _with_right_checksum(data: bytes) -> bytes:
    return (
        data[: CRC_BYTES.start]
        + crc32c(data[CRC_BYTES.stop :]).to_bytes(4)
        + data[CRC_BYTES.stop :]
        if len(data) >= CRC_BYTES.stop
        else data
    )


def _parse_names(data: bytes) -> object:
    name = data[:FILE_NAME_BYTES_MAX].decode(errors="surrogateescape")
    return (
        parse_segment_file_name(name),
        parse_metadata_snapshot_name(name),
        parse_partition_directory_name(name),
    )


KINDS = (
    FileKind(
        parse_producer_snapshot,
        build_producer_snapshot,
        ("golden-0/00000000000000000021.snapshot",),
        _with_right_checksum,
    ),
    FileKind(parse_quorum_state, build_quorum_state, (f"{METADATA_LOG}/quorum-state",)),
    FileKind(
        parse_offset_checkpoint,
        build_offset_checkpoint,
        ("replication-offset-checkpoint", "log-start-offset-checkpoint"),
    ),
    FileKind(
        parse_leader_epoch_checkpoint,
        build_leader_epoch_checkpoint,
        ("golden-0/leader-epoch-checkpoint",),
    ),
    FileKind(parse_meta_properties, build_meta_properties, ("meta.properties",)),
    FileKind(parse_partition_metadata, build_partition_metadata, ("golden-0/partition.metadata",)),
    FileKind(parse_clean_shutdown, build_clean_shutdown, ("kafka_cleanshutdown",)),
    FileKind(
        lambda data: parse_offset_index(BASE_OFFSET, data),
        lambda found: build_offset_index(BASE_OFFSET, found),
        (f"{METADATA_LOG}/00000000000000000000.index",),
    ),
    FileKind(
        lambda data: parse_time_index(BASE_OFFSET, data),
        lambda found: build_time_index(BASE_OFFSET, found),
        (f"{METADATA_LOG}/00000000000000000000.timeindex",),
    ),
    FileKind(
        parse_transaction_index,
        build_transaction_index,
        ("golden-0/00000000000000000021.txnindex",),
    ),
    FileKind(parse_metadata_snapshot, None, ("bootstrap.checkpoint",), with_right_checksums),
    FileKind(_parse_names, None),
)
TEXTS = (
    (1, b'{"data_version":0,"leaderId":1e9,"leaderEpoch":true}'),
    (2, b"0\n1\norders 1_0 +7\n"),
    (4, b"version=1\nnode.id=1\ncluster.id=a=b#c\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\n"),
    (6, b'{"version":0,"brokerEpoch":1e99}'),
    (6, b"[[[[]]]]"),
)
NAMES = (
    "00000000000000000021.txnindex",
    "00000000000000000021-0000000003.checkpoint",
    "orders-7",
    "00000000000000000021.log.deleted",
)


def check_file(data: bytes) -> None:
    """Read a file; the first byte chooses the kind."""
    if not data:
        return
    kind, content = KINDS[data[0] % len(KINDS)], data[1:]
    found = kind.parse(content if kind.heal is None else kind.heal(content))
    if kind.build is not None:
        try:
            again = _build(kind, found)
        except MalformedMessage as malformed:
            raise AssertionError(f"what was read cannot be written: {malformed}") from malformed
        assert kind.parse(again) == found, "a file that was written again says something else"


def file_seeds() -> Iterator[bytes]:
    """Yield the files of an Apache Kafka 3.9.1, and names."""
    for number, kind in enumerate(KINDS):
        for file in kind.files:
            yield bytes((number,)) + (GOLDEN / file).read_bytes()
    yield bytes((1,)) + build_quorum_state(
        QuorumState(leader_id=1, voted_directory_id=bytes(range(16))), DYNAMIC_VOTERS_VERSION
    )
    for number, text in TEXTS:
        yield bytes((number,)) + text
    for name in NAMES:
        yield bytes((len(KINDS) - 1,)) + name.encode()


def _build(kind: FileKind, found: object) -> bytes:
    assert kind.build is not None, "asked for only where files are built"
    if isinstance(found, QuorumState) and found.voted_directory_id != bytes(16):
        return build_quorum_state(found, DYNAMIC_VOTERS_VERSION)
    return kind.build(found)
