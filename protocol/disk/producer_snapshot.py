"""The producer snapshot of a partition: what the leader knew of every producer before the offset in the file's name.

A start reads the newest one and replays the log from there. Only the last batch of a producer is kept, so a start forgets the four before it.
Source: KIP-98, ProducerStateManager.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from crc32c import crc32c

from protocol.disk.malformed_file import MalformedFile

FILE = "producer snapshot"
VERSION = 1
HEAD = struct.Struct(">hI")  # version, checksum of all that follows
COUNT = struct.Struct(">i")
ENTRY = struct.Struct(">qhiqiqiq")
NO_TRANSACTION = -1
NO_COORDINATOR_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSnapshotEntry:
    """One producer: its last batch ends at last_offset with last_sequence and spans offset_delta + 1 offsets."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    current_transaction_first_offset: int = NO_TRANSACTION


def build_producer_snapshot(entries: Iterable[ProducerSnapshotEntry]) -> bytes:
    """Return the file."""
    packed = [
        ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.offset_delta,
            entry.timestamp,
            entry.coordinator_epoch,
            entry.current_transaction_first_offset,
        )
        for entry in entries
    ]
    body = COUNT.pack(len(packed)) + b"".join(packed)
    return HEAD.pack(VERSION, crc32c(body)) + body


def parse_producer_snapshot(data: bytes) -> list[ProducerSnapshotEntry]:
    """Return the producers in the order of the file. Raises MalformedFile: Kafka then deletes it and takes the one before."""
    if len(data) < HEAD.size + COUNT.size:
        raise MalformedFile(FILE, f"{len(data)} bytes")
    version, crc = HEAD.unpack_from(data)
    (count,) = COUNT.unpack_from(data, HEAD.size)
    if version != VERSION:
        raise MalformedFile(FILE, f"version {version}")
    if crc32c(memoryview(data)[HEAD.size :]) != crc:
        raise MalformedFile(FILE, "the checksum does not fit")
    entries = memoryview(data)[HEAD.size + COUNT.size :]
    if len(entries) != count * ENTRY.size:
        raise MalformedFile(FILE, f"{count} entries in {len(entries)} bytes")
    return [
        ProducerSnapshotEntry(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            last_sequence=last_sequence,
            last_offset=last_offset,
            offset_delta=offset_delta,
            timestamp=timestamp,
            coordinator_epoch=coordinator_epoch,
            current_transaction_first_offset=first_offset,
        )
        for producer_id, producer_epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, first_offset in ENTRY.iter_unpack(
            entries
        )
    ]
