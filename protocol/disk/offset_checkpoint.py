"""replication-offset-checkpoint, recovery-point-offset-checkpoint and log-start-offset-checkpoint:
one offset per partition.

For a log directory: high watermarks, recovery points (flushed offsets), log start offsets.
Source: OffsetCheckpointFile.
"""

from collections.abc import Mapping

from protocol.disk.checkpoint_lines import build_checkpoint, parse_checkpoint
from protocol.disk.java_integers import parse_int32, parse_int64
from protocol.disk.malformed_file import MalformedFile

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
