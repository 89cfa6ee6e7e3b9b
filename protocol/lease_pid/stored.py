"""The files of a lease_pid server: the messages of each partition, and one snapshot of all producer
state.

A stored message follows its size and its checksum, so that a torn end is detected. The snapshot is
the map of producers together with the vector of offsets that it covers.
Source: the lease_pid draft.
"""

from collections.abc import Iterator
from typing import Final

from crc32c import crc32c

from protocol.codec.fixed import fixed
from protocol.codec.message_codec import compiled
from protocol.lease_pid.messages import FoundMessage
from protocol.malformed import MalformedMessage
from protocol.schema import array, int32, int64, message, string, struct, structure, uint32


@structure
class SizeAndChecksum:
    """Before each stored message: its size, and its CRC-32C."""

    size: int = uint32()
    checksum: int = uint32()


SIZE_AND_CHECKSUM: Final = fixed(SizeAndChecksum)


@message(kind="lease-pid", versions="0")
class StoredMessage:
    """One message of a log. `arrived_ms`: when this server received it; leases start there."""

    arrived_ms: int = int64()
    found: FoundMessage = struct(FoundMessage)


@structure
class StoredProducer:
    """(pid, topic, partition) -> (generation, sequence high-water mark), and when this server
    received it first and last.
    """

    partition_index: int = int32()
    """Which of the snapshot's partitions."""
    producer_id: int = uint32(kafka_name="pid")
    generation: int = int32()
    sequence_high_watermark: int = int32()
    first_seen_ms: int = int64()
    last_seen_ms: int = int64()


@structure
class StoredPartition:
    """One entry of the offset vector: everything below `next_offset` is in the map."""

    topic: str = string()
    partition: int = int32()
    next_offset: int = int64()


@message(kind="lease-pid", versions="0")
class StoredSnapshot:
    """All producer state of one server at one time."""

    partitions: list[StoredPartition] = array(StoredPartition)
    producers: list[StoredProducer] = array(StoredProducer)


def build_stored(content: StoredMessage | StoredSnapshot) -> bytes:
    """Return it with its size and its checksum in front."""
    data = compiled(type(content), 0).encode(content)
    return SIZE_AND_CHECKSUM.pack(len(data), crc32c(data)) + data


def split_stored(data: bytes) -> Iterator[tuple[StoredMessage, int]]:
    """Yield each complete message of a log, with its end position; a torn or corrupt one ends
    it.
    """
    position = 0
    while (content := _whole(data, position)) is not None:
        position += SIZE_AND_CHECKSUM.size + len(content)
        try:
            stored: StoredMessage = compiled(StoredMessage, 0).parse(content)
        except MalformedMessage:
            return
        yield stored, position


def parse_snapshot(data: bytes) -> StoredSnapshot:
    """Read a snapshot. Raises MalformedMessage."""
    content = _whole(data, 0)
    if content is None:
        raise MalformedMessage(None, None, "", "a snapshot of leases is torn or damaged")
    found: StoredSnapshot = compiled(StoredSnapshot, 0).parse(content)
    return found


def _whole(data: bytes, position: int) -> bytes | None:
    """Return the message at a position, if it is complete and valid."""
    if position + SIZE_AND_CHECKSUM.size > len(data):
        return None
    size, checksum = SIZE_AND_CHECKSUM.unpack_from(data, position)
    content = data[position + SIZE_AND_CHECKSUM.size : position + SIZE_AND_CHECKSUM.size + size]
    return content if len(content) == size and crc32c(content) == checksum else None
