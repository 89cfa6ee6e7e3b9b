"""Classifies files by path, so that a fault can target 'the third write to a metadata log' without
names of topics.

Source: the layout of Kafka's log directories, and of ZooKeeper's dataDir.
"""

from enum import StrEnum

CLEANED, SWAP = ".cleaned", ".swap"
"""Suffixes of replacement files before their rename."""
METADATA_TOPIC_PREFIX = "__cluster_metadata-"
ZOOKEEPER_DIRECTORY = "version-2"


class FileClass(StrEnum):
    """Kinds of files under a data directory."""

    METADATA_LOG = "metadata-log"
    PARTITION_LOG = "partition-log"
    QUORUM_STATE = "quorum-state"
    CHECKPOINT = "checkpoint"
    ZOOKEEPER_LOG = "zookeeper-log"
    OTHER = "other"


def file_class(path: str) -> FileClass:
    """Return the class of a file by its path."""
    directory, _, name = path.removesuffix(CLEANED).removesuffix(SWAP).rpartition("/")
    if name == "quorum-state":
        return FileClass.QUORUM_STATE
    if name.endswith(("checkpoint", ".snapshot")) or name == "meta.properties":
        return FileClass.CHECKPOINT
    if name.endswith(".log"):
        return (
            FileClass.METADATA_LOG
            if directory.rpartition("/")[2].startswith(METADATA_TOPIC_PREFIX)
            else FileClass.PARTITION_LOG
        )
    if directory.endswith(ZOOKEEPER_DIRECTORY) and name.startswith("log."):
        return FileClass.ZOOKEEPER_LOG
    return FileClass.OTHER
