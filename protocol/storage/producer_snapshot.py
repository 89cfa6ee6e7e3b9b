"""The producer snapshot of a partition: the producer state before the offset in the file's name.

On startup the newest one is loaded and the log is replayed from there. Only the last batch of a
producer is stored, so the four before it are lost.
Source: KIP-98, ProducerStateManager, ProducerSnapshot.json (a message of Kafka's after 3.9).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from protocol.codec.fixed import fixed
from protocol.codec.message_codec import compiled
from protocol.malformed import MalformedFile, MalformedMessage
from protocol.schema import array, int16, int32, int64, message, structure, uint32
from protocol.version_prefixed import PREFIX_BYTES, build_version_prefixed, prefixed_version

FILE = "producer snapshot"
VERSION = 1
CRC_BYTES = slice(PREFIX_BYTES, PREFIX_BYTES + 4)
NO_TRANSACTION = -1
NO_COORDINATOR_EPOCH = -1


@structure(kafka_name="ProducerEntry")
class ProducerSnapshotEntry:
    """One producer: its last batch ends at last_offset with last_sequence and spans offset_delta +
    1 offsets.
    """

    producer_id: int = int64()
    producer_epoch: int = int16(kafka_name="Epoch")
    last_sequence: int = int32()
    last_offset: int = int64()
    offset_delta: int = int32()
    timestamp: int = int64()
    coordinator_epoch: int = int32(default=NO_COORDINATOR_EPOCH)
    current_transaction_first_offset: int = int64(
        default=NO_TRANSACTION, kafka_name="CurrentTxnFirstOffset"
    )


@structure
class ProducerCount:
    """The number of producers, before them."""

    count: int = int32()


COUNT = fixed(ProducerCount)
ROW = fixed(ProducerSnapshotEntry)
ROWS_POSITION = CRC_BYTES.stop + COUNT.size


@message(kind="data", versions="1")
class ProducerSnapshot:
    """The file after its version; the checksum covers everything that follows it."""

    crc: int = uint32()
    producer_entries: list[ProducerSnapshotEntry] = array(ProducerSnapshotEntry)


class ProducerRow(NamedTuple):
    """The producers in the order of the file: there may be a hundred thousand of them."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_transaction_first_offset: int


def build_producer_rows(rows: Iterable[ProducerRow]) -> bytes:
    """Return the file."""
    return build_packed_rows([ROW.pack(*row) for row in rows])


def build_packed_rows(packed: Sequence[bytes]) -> bytes:
    """Return the file with rows that are already packed, by `ROW`."""
    counted = COUNT.pack(len(packed)) + b"".join(packed)
    return VERSION.to_bytes(PREFIX_BYTES) + crc32c(counted).to_bytes(4) + counted


def parse_producer_rows(data: bytes) -> Iterator[ProducerRow]:
    """Return the producers in the order of the file.

    Raises MalformedFile at once: Kafka then deletes the file and loads the previous one.
    """
    _check(data)
    if (
        len(data) < ROWS_POSITION
        or len(data) - ROWS_POSITION != COUNT.unpack_from(data, CRC_BYTES.stop)[0] * ROW.size
    ):
        raise MalformedFile(FILE, f"{len(data)} bytes do not hold the producers that it counts")
    return map(ProducerRow._make, ROW.iter_unpack(memoryview(data)[ROWS_POSITION:]))


def build_producer_snapshot(entries: Iterable[ProducerSnapshotEntry]) -> bytes:
    """Return the file."""
    content = bytearray(
        build_version_prefixed(ProducerSnapshot(producer_entries=list(entries)), VERSION)
    )
    content[CRC_BYTES] = crc32c(memoryview(content)[CRC_BYTES.stop :]).to_bytes(4)
    return bytes(content)


def parse_producer_snapshot(data: bytes) -> list[ProducerSnapshotEntry]:
    """Return the producers in the order of the file.

    Raises MalformedFile: Kafka then deletes the file and loads the previous one.
    """
    _check(data)
    try:
        snapshot, position = compiled(ProducerSnapshot, VERSION).decode(data, PREFIX_BYTES)
    except MalformedMessage as malformed:
        raise MalformedFile(FILE, malformed.reason) from malformed
    if position != len(data):
        raise MalformedFile(FILE, f"{len(data) - position} bytes are left")
    return snapshot.producer_entries


def _check(data: bytes) -> None:
    try:
        version = prefixed_version(data)
    except MalformedMessage as malformed:
        raise MalformedFile(FILE, malformed.reason) from malformed
    if version != VERSION:
        raise MalformedFile(FILE, f"version {version}")
    if crc32c(memoryview(data)[CRC_BYTES.stop :]) != int.from_bytes(data[CRC_BYTES]):
        raise MalformedFile(FILE, "the checksum does not fit")
