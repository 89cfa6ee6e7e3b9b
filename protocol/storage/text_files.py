"""The small text files of a log directory: checkpoints, meta.properties, partition.metadata, and
the mark of a clean shutdown; numbers in them are those that Java accepts.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from protocol.malformed import MalformedFile
from protocol.uuids import parse_uuid_text, uuid_text

# --------------------------------------------------------------------------------------------------
# Integers in text files, as Java's Integer.parseInt and Long.parseLong accept them: plain digits in
# range
#
# Python's int() accepts more: underscores, spaces, digits of other scripts, and unlimited length.
# Source: CheckpointFile, MetaProperties.

_PLAIN = re.compile("[+-]?[0-9]{1,40}")


def parse_int32(text: str) -> int:
    """Return the number. Raises ValueError."""
    return _parse(text, 32)


def parse_int64(text: str) -> int:
    """Return the number. Raises ValueError."""
    return _parse(text, 64)


def _parse(text: str, bits: int) -> int:
    if not _PLAIN.fullmatch(text):
        raise ValueError(f"{text[:60]!r} is no integer")
    number = int(text)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"{number} does not fit into {bits} bits")
    return number


# --------------------------------------------------------------------------------------------------
# Kafka's checkpoint files: a version line `0`, a line with the number of entries, one line per
# entry
#
# The count reveals a truncated file. Source: CheckpointFile.

# --------------------------------------------------------------------------------------------------
# The structure of Kafka's checkpoint files: a version line `0`, a line with the number of entries,
# one line per entry.
#
# The count reveals a truncated file.   Source: CheckpointFile.

VERSION_LINE = "0"


def build_checkpoint(entries: Sequence[str]) -> bytes:
    """Return a file with the entries."""
    return "".join(f"{line}\n" for line in (VERSION_LINE, str(len(entries)), *entries)).encode()


def parse_checkpoint(file: str, data: bytes, fields_per_entry: int) -> list[list[str]]:
    """Return the fields of every entry; an empty file has none. Raises MalformedFile."""
    lines = data.decode(errors="replace").splitlines()
    if not lines:
        return []
    if lines[0] != VERSION_LINE:
        raise MalformedFile(file, f"version {lines[0]!r}")
    entries = [line.split() for line in lines[2:]]
    if len(lines) < 2 or lines[1] != str(len(entries)):
        raise MalformedFile(file, f"{len(entries)} entries, {lines[1:2]} announced")
    for number, entry in enumerate(entries, start=3):
        if len(entry) != fields_per_entry:
            raise MalformedFile(
                file, f"line {number} has {len(entry)} words instead of {fields_per_entry}"
            )
    return entries


# --------------------------------------------------------------------------------------------------
# leader-epoch-checkpoint: the start offset of each leader epoch of a partition.
#
# A restarted replica asks for the end offset of its last epoch and truncates its log there.
# Source: KIP-101, LeaderEpochCheckpointFile.

LEADER_EPOCHS = "leader-epoch-checkpoint"


class EpochStart(NamedTuple):
    """The start offset of an epoch: the first offset that its leader wrote, or would have
    written.
    """

    leader_epoch: int
    start_offset: int


def build_leader_epoch_checkpoint(starts: Sequence[EpochStart]) -> bytes:
    """Return the file, oldest epoch first."""
    return build_checkpoint([f"{start.leader_epoch} {start.start_offset}" for start in starts])


def parse_leader_epoch_checkpoint(data: bytes) -> list[EpochStart]:
    """Return the epochs in the order of the file. Raises MalformedFile."""
    try:
        return [
            EpochStart(parse_int32(leader_epoch), parse_int64(start_offset))
            for leader_epoch, start_offset in parse_checkpoint(LEADER_EPOCHS, data, 2)
        ]
    except ValueError as failure:
        if isinstance(failure, MalformedFile):
            raise
        raise MalformedFile(LEADER_EPOCHS, str(failure)) from failure


# --------------------------------------------------------------------------------------------------
# replication-offset-checkpoint, recovery-point-offset-checkpoint and log-start-offset-checkpoint:
# one offset per partition.
#
# For a log directory: high watermarks, recovery points (flushed offsets), log start offsets.
# Source: OffsetCheckpointFile.

TopicPartition = tuple[str, int]


def build_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return the file, partitions in the given order (Kafka's order is that of a hash table)."""
    return build_checkpoint(
        [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    )


def parse_offset_checkpoint(
    data: bytes, file: str = "offset checkpoint"
) -> dict[TopicPartition, int]:
    """Return the offset of every partition in the file. Raises MalformedFile."""
    try:
        return {
            (topic, parse_int32(partition)): parse_int64(offset)
            for topic, partition, offset in parse_checkpoint(file, data, 3)
        }
    except ValueError as failure:
        if isinstance(failure, MalformedFile):
            raise
        raise MalformedFile(file, str(failure)) from failure


# --------------------------------------------------------------------------------------------------
# .kafka_cleanshutdown: marks that the broker closed its logs cleanly, and contains its broker epoch
#
# With it, logs are loaded without recovery on startup; without it every log is recovered from its
# recovery point. Deleted once the logs are loaded.
# Source: KIP-966 (the epoch, 3.7), CleanShutdownFileHandler.

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
NO_BROKER_EPOCH = -1


def build_clean_shutdown(broker_epoch: int | None) -> bytes:
    """Return the file; without an epoch it is empty, as it was before 3.7."""
    if broker_epoch is None:
        return b""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def parse_clean_shutdown(data: bytes) -> int:
    """Return the broker epoch, NO_BROKER_EPOCH for an empty file.

    Raises MalformedFile; the existence of the file alone means a clean shutdown.
    """
    if not data:
        return NO_BROKER_EPOCH
    try:
        return parse_int64(str(json.loads(data)["brokerEpoch"]))
    except (ValueError, TypeError, KeyError, RecursionError) as failure:
        raise MalformedFile(CLEAN_SHUTDOWN_FILE, repr(failure)) from failure


# --------------------------------------------------------------------------------------------------
# partition.metadata: the topic id of a partition directory, to distinguish a recreated topic from
# the old one with the same name
#
# Source: KIP-516, PartitionMetadataFile.

PARTITION_METADATA_FILE = "partition.metadata"


def build_partition_metadata(topic_id: bytes) -> bytes:
    """Return the file; its last line has no line end, as Kafka writes it."""
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def parse_partition_metadata(data: bytes) -> bytes:
    """Return the topic id. Raises MalformedFile."""
    lines = data.decode(errors="replace").splitlines()
    if (
        len(lines) != 2
        or lines[0].split() != ["version:", "0"]
        or not lines[1].startswith("topic_id: ")
    ):
        raise MalformedFile(PARTITION_METADATA_FILE, f"{lines}")
    try:
        return parse_uuid_text(lines[1].removeprefix("topic_id: "))
    except ValueError as failure:
        raise MalformedFile(PARTITION_METADATA_FILE, str(failure)) from failure


# --------------------------------------------------------------------------------------------------
# meta.properties: the node id and cluster id of a log directory
#
# Version 0 is ZooKeeper's (broker.id), version 1 KRaft's (node.id); directory.id was added in 3.7.
# Source: MetaProperties, java.util.Properties.

META_PROPERTIES_FILE = "meta.properties"
ZOOKEEPER_VERSION = 0
KRAFT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The contents; a version 0 file may lack any of the three."""

    version: int = KRAFT_VERSION
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: bytes | None = None


def build_meta_properties(meta: MetaProperties, written_at: str | None = None) -> bytes:
    """Return the file as Java's Properties writes it: an empty comment, the date if one is given,
    keys in the order of its hash table.

    `written_at` is a date in Java's form, `Sat Nov 21 12:04:56 UTC 2026`.
    """
    lines = ["#"] if written_at is None else ["#", f"#{written_at}"]
    if meta.node_id is not None:
        lines.append(
            f"{'broker.id' if meta.version == ZOOKEEPER_VERSION else 'node.id'}={meta.node_id}"
        )
    if meta.directory_id is not None:
        lines.append(f"directory.id={uuid_text(meta.directory_id)}")
    lines.append(f"version={meta.version}")
    if meta.cluster_id is not None:
        lines.append(f"cluster.id={meta.cluster_id}")
    return "".join(f"{line}\n" for line in lines).encode()


def parse_meta_properties(data: bytes) -> MetaProperties:
    """Return the contents of the file.

    Raises MalformedFile if a version 1 file contains no node id or no cluster id.
    """
    properties = dict(_properties(data))
    try:
        version = parse_int32(properties.get("version", str(ZOOKEEPER_VERSION)))
        node_id = properties.get("broker.id" if version == ZOOKEEPER_VERSION else "node.id")
        directory_id = properties.get("directory.id")
        meta = MetaProperties(
            version=version,
            cluster_id=properties.get("cluster.id"),
            node_id=None if node_id is None else parse_int32(node_id),
            directory_id=None if directory_id is None else parse_uuid_text(directory_id),
        )
    except ValueError as failure:
        raise MalformedFile(META_PROPERTIES_FILE, str(failure)) from failure
    if version not in (ZOOKEEPER_VERSION, KRAFT_VERSION):
        raise MalformedFile(META_PROPERTIES_FILE, f"version {version}")
    if version == KRAFT_VERSION and (meta.node_id is None or meta.cluster_id is None):
        raise MalformedFile(META_PROPERTIES_FILE, "version 1 needs node.id and cluster.id")
    return meta


def _properties(data: bytes) -> list[tuple[str, str]]:
    """Read `key=value` lines; what Kafka writes here never needs Java's escapes or continuation
    lines.
    """
    found = []
    for line in data.decode(errors="replace").splitlines():
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            key, _, value = stripped.partition("=")
            found.append((key.strip(), value.strip()))
    return found
