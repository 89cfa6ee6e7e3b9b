"""Names of files and directories in a log directory.

Offsets in names are padded to 20 digits, so that a sorted listing is in the order of the log.
Source: LogFileUtils, LocalLog, Snapshots, UnifiedLog.
"""

import re
from typing import Final, NamedTuple

META_PROPERTIES: Final = "meta.properties"
BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
REPLICATION_OFFSETS: Final = "replication-offset-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
QUORUM_STATE: Final = "quorum-state"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
METADATA_TOPIC: Final = "__cluster_metadata"
UNFINISHED_SNAPSHOT: Final = ".checkpoint.part"
DELETED_SNAPSHOT: Final = ".checkpoint.deleted"

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
PRODUCER_SNAPSHOT: Final = ".snapshot"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
DELETED: Final = ".deleted"
FUTURE: Final = "-future"

_SEGMENT_FILE = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)")
_METADATA_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_FUTURE_DIRECTORY = re.compile(r"(.+)-(\d+)\.[0-9a-f]{32}-future")
_PARTITION_DIRECTORY = re.compile(r"(.+)-(\d+)")


class SegmentFile(NamedTuple):
    """A file of one segment; of a producer snapshot the offset is the first one that it does not
    cover.
    """

    offset: int
    suffix: str


class MetadataSnapshotName(NamedTuple):
    """End offset (one past the last) of what a metadata snapshot covers, and the epoch of the last
    record covered.
    """

    end_offset: int
    leader_epoch: int


class PartitionDirectory(NamedTuple):
    """A directory of one partition."""

    topic: str
    partition: int


def segment_file_name(base_offset: int, suffix: str = LOG) -> str:
    """Return for example `00000000000000000042.log`."""
    return f"{base_offset:020d}{suffix}"


def parse_segment_file_name(name: str) -> SegmentFile | None:
    """Return the parts of the name, None for any other file."""
    match = _SEGMENT_FILE.fullmatch(name)
    return SegmentFile(int(match[1]), match[2]) if match else None


def metadata_snapshot_name(end_offset: int, leader_epoch: int) -> str:
    """Return for example `00000000000000000042-0000000003.checkpoint`."""
    return f"{end_offset:020d}-{leader_epoch:010d}.checkpoint"


def unfinished_snapshot_name(end_offset: int, leader_epoch: int, number: int) -> str:
    """Return the name under which a metadata snapshot is written; numbers distinguish attempts."""
    return f"{end_offset:020d}-{leader_epoch:010d}-{number}{UNFINISHED_SNAPSHOT}"


def parse_metadata_snapshot_name(name: str) -> MetadataSnapshotName | None:
    """Return the parts of the name, None for any other file (also for one that is still being
    written).
    """
    match = _METADATA_SNAPSHOT.fullmatch(name)
    return MetadataSnapshotName(int(match[1]), int(match[2])) if match else None


def partition_directory_name(topic: str, partition: int) -> str:
    """Return for example `orders-3`."""
    return f"{topic}-{partition}"


def future_directory_name(topic: str, partition: int, unique: str) -> str:
    """Return for example `orders-3.<32 hex digits>-future`: the directory of the future replica
    while it moves to another log directory.
    """
    return f"{topic}-{partition}.{unique}{FUTURE}"


def parse_future_directory_name(name: str) -> PartitionDirectory | None:
    """Return the partition of the future replica in a directory of this name, None for any other
    directory.
    """
    match = _FUTURE_DIRECTORY.fullmatch(name)
    return PartitionDirectory(match[1], int(match[2])) if match else None


def parse_partition_directory_name(name: str) -> PartitionDirectory | None:
    """Return the parts of the name, None for any other directory; `orders-3.<uuid>-delete` is
    another one.
    """
    match = _PARTITION_DIRECTORY.fullmatch(name)
    return PartitionDirectory(match[1], int(match[2])) if match else None
