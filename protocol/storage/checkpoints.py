"""Kafka's checkpoint files: a version line `0`, a line with the number of entries, one line per
entry.

The count reveals a truncated file.   Source: CheckpointFile.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from protocol.malformed import MalformedFile
from protocol.storage.java_integers import parse_int32, parse_int64

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
