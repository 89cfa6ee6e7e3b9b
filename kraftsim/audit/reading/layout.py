"""What a file of a log directory is, by its name and that of its directory.

Source: LogFileUtils, LogManager, LocalLog (names of directories), Snapshots.
"""

import re
from typing import Final, NamedTuple

from protocol.storage import file_names
from protocol.storage.file_names import (
    parse_metadata_snapshot_name,
    parse_partition_directory_name,
    parse_segment_file_name,
)

LIVE: Final = "live"
FUTURE: Final = "future"
CHECKPOINT: Final = "checkpoint"
UNKNOWN: Final = "unknown"
KINDS: Final = {
    file_names.LOG: "log",
    file_names.OFFSET_INDEX: "index",
    file_names.TIME_INDEX: "timeindex",
    file_names.TRANSACTION_INDEX: "txnindex",
    file_names.PRODUCER_SNAPSHOT: "snapshot",
}
SUFFIXES: Final = {
    file_names.DELETED: "deleted",
    file_names.CLEANED: "cleaned",
    file_names.SWAP: "swap",
}
OFFSET_CHECKPOINTS: Final = (
    file_names.REPLICATION_OFFSETS,
    file_names.RECOVERY_POINTS,
    file_names.LOG_START_OFFSETS,
    file_names.CLEANER_OFFSETS,
)
OF_LOG_DIR: Final = (
    file_names.META_PROPERTIES,
    file_names.BOOTSTRAP_CHECKPOINT,
    file_names.CLEAN_SHUTDOWN,
    *OFFSET_CHECKPOINTS,
    ".lock",
)
OF_PARTITION: Final = (
    file_names.LEADER_EPOCHS,
    file_names.PARTITION_METADATA,
    file_names.QUORUM_STATE,
    "remote_log_snapshot",
)
OTHER_DIRECTORIES: Final = ("remote-log-index-cache", "lost+found")
"""Directories of a log directory that hold no partition."""
INT64_MAX: Final = (1 << 63) - 1
INT32_MAX: Final = (1 << 31) - 1
_MOVED: Final = re.compile(r"(.+)-(\d+)\.[0-9a-f]{32}-(future|delete|stray)")


class DirectoryName(NamedTuple):
    """A directory of a partition; `state` is live, future, delete or stray."""

    topic: str
    partition: int
    state: str


class FileName(NamedTuple):
    """A file's kind, the offset in its name, and its state: live, deleted, cleaned or swap."""

    kind: str
    base_offset: int | None = None
    state: str = LIVE


def parse_directory(name: str) -> DirectoryName | None:
    """Return the parts of the name, None for a directory of something else."""
    moved = _MOVED.fullmatch(name)
    if moved is not None:
        found = DirectoryName(moved[1], int(moved[2]), moved[3])
    else:
        plain = parse_partition_directory_name(name)
        if plain is None:
            return None
        found = DirectoryName(plain.topic, plain.partition, LIVE)
    return found if found.partition <= INT32_MAX else None


def parse_file(name: str) -> FileName:
    """Return what a file is."""
    state = LIVE
    while (suffix := next((each for each in SUFFIXES if name.endswith(each)), "")) != "":
        name, state = name.removesuffix(suffix), SUFFIXES[suffix]
    segment = parse_segment_file_name(name)
    if segment is not None and segment.offset <= INT64_MAX:
        return FileName(KINDS[segment.suffix], segment.offset, state)
    snapshot = parse_metadata_snapshot_name(name)
    if snapshot is not None and snapshot.end_offset <= INT64_MAX:
        return FileName(CHECKPOINT, snapshot.end_offset, state)
    known = name in OF_LOG_DIR or name in OF_PARTITION
    return FileName(name if known else UNKNOWN, None, state)
