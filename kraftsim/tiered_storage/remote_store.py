"""Remote segments in an object store: the objects of a segment and their keys.

Keys are those of Apache Kafka's LocalTieredStorage, so that each can read a directory written by
the other.
Source: org.apache.kafka.server.log.remote.storage.{RemoteStorageManager, RemoteLogSegmentFileset},
KIP-405.
"""

from collections.abc import Mapping, Sequence
from enum import Enum

from kraftsim.tiered_storage.rules_segments import RemoteSegment, TopicIdPartition
from kraftsim.world.interface import Chunk, FileSlice, ObjectStore
from protocol.storage.file_names import (
    LOG,
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
)
from protocol.uuids import uuid_text


class RemoteFile(Enum):
    """The files of a remote segment, in the order in which they are written; the value is the
    suffix of the key.
    """

    RECORDS = LOG
    OFFSETS = OFFSET_INDEX
    TIMES = TIME_INDEX
    TRANSACTIONS = TRANSACTION_INDEX
    LEADER_EPOCHS = ".leader_epoch_checkpoint"
    PRODUCERS = PRODUCER_SNAPSHOT


class RemoteStore:
    """Copies, reads and deletes segments.

    Every method may raise OSError; a missing object is a FileNotFoundError.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    async def copy(
        self, segment: RemoteSegment, files: Mapping[RemoteFile, Sequence[Chunk | FileSlice]]
    ) -> bytes | None:
        """Write a segment, one object after the other; return the store's custom metadata, if
        any.
        """
        for kind in RemoteFile:
            if kind in files:
                await self._objects.put(key_of(segment, kind), files[kind])
        return None

    async def read(self, segment: RemoteSegment, position: int, size_bytes: int) -> bytes:
        """Return up to this many bytes of the records; fewer only at their end."""
        return await self._objects.get(key_of(segment, RemoteFile.RECORDS), position, size_bytes)

    async def file(self, segment: RemoteSegment, kind: RemoteFile) -> bytes:
        """Return a whole file of a segment."""
        return await self._objects.get(key_of(segment, kind))

    async def delete(self, segment: RemoteSegment) -> None:
        """Delete all objects of a segment, the records last."""
        for kind in reversed(RemoteFile):
            await self._objects.delete(key_of(segment, kind))


def directory_of(owner: TopicIdPartition) -> str:
    """Return the key prefix of a partition's segments."""
    return f"{owner.topic}-{owner.partition}-{uuid_text(owner.topic_id)}"


def key_of(segment: RemoteSegment, kind: RemoteFile) -> str:
    """Return the key of a file of a segment."""
    return (
        f"{directory_of(segment.owner)}/{segment.start_offset:020d}-"
        f"{uuid_text(segment.segment_id)}{kind.value}"
    )
