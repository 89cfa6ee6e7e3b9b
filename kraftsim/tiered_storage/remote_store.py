"""Remote segments in an object store: the objects of a segment and their keys.

Keys are those of Apache Kafka's LocalTieredStorage, so that each can read a directory written by
the other.
Source: org.apache.kafka.server.log.remote.storage.{RemoteStorageManager, RemoteLogSegmentFileset},
KIP-405.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from posixpath import isabs, normpath
from typing import Final

from kraftsim.server.config import REMOTE_METADATA_PREFIX, STORE_PREFIX, NodeConfig
from kraftsim.server.config_keys import ConfigError
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


# --------------------------------------------------------------------------------------------------
# Where remote storage is located, and the configuration of its metadata topic, by a node's
# properties
#
# `remote.log.storage.manager.class.name` selects the implementation. Kafka's LocalTieredStorage
# (the default) is a directory, `rsm.config.dir`, relative to the parent of the data directory
# unless it begins with '/'; `kraftsim.s3` is a bucket of an S3 service, `rsm.config.s3.bucket`.
# Source: org.apache.kafka.server.log.remote.storage.RemoteLogManagerConfig,
# TopicBasedRemoteLogMetadataManagerConfig, LocalTieredStorage.

LOCAL_TIERED_STORAGE: Final = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
S3: Final = "kraftsim.s3"
DEFAULT_DIRECTORY: Final = "/tmp/kraftsim-remote-store"
DIRECTORY_IN_IT: Final = "kafka-tiered-storage"
"""The subdirectory that LocalTieredStorage uses."""
METADATA_TOPIC: Final = "__remote_log_metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataTopicSettings:
    """The configuration by which the metadata topic is created."""

    partitions: int = 50
    replication_factor: int = 3
    retention_ms: int = -1


def store_location(config: NodeConfig) -> tuple[str, Mapping[str, str]]:
    """Return the location of remote storage, and the configuration of its client.

    Raises ConfigError.
    """
    settings = {
        name.removeprefix(STORE_PREFIX): value
        for name, value in config.given.items()
        if name.startswith(STORE_PREFIX)
    }
    kind = config.remote_log_storage_manager_class_name or LOCAL_TIERED_STORAGE
    if kind == S3:
        if not settings.get("s3.bucket"):
            raise ConfigError(f"{STORE_PREFIX}s3.bucket is required with {S3}")
        return f"s3:{settings['s3.bucket']}", settings
    if kind != LOCAL_TIERED_STORAGE:
        raise ConfigError(
            f"remote.log.storage.manager.class.name: expected {LOCAL_TIERED_STORAGE} or {S3}, "
            f"got {kind!r}"
        )
    place = settings.get("dir", DEFAULT_DIRECTORY)
    return (
        (
            f"file:{place if isabs(place) else normpath(f'{config.log_dir}/../{place}')}/"
            f"{DIRECTORY_IN_IT}"
        ),
        settings,
    )


def metadata_topic_settings(config: NodeConfig) -> MetadataTopicSettings:
    """Return the configuration of the metadata topic. Raises ConfigError."""
    prefix = f"{REMOTE_METADATA_PREFIX}remote.log.metadata.topic."
    try:
        return MetadataTopicSettings(
            partitions=int(config.given.get(f"{prefix}num.partitions", "50")),
            replication_factor=int(config.given.get(f"{prefix}replication.factor", "3")),
            retention_ms=int(config.given.get(f"{prefix}retention.ms", "-1")),
        )
    except ValueError as reason:
        raise ConfigError(f"{prefix}*: {reason}") from None
