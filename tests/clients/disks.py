"""The directories and batches of a partition on the brokers of a cluster."""

from pathlib import Path

from kraftsim.cluster.processes import ProcessCluster
from protocol.records.batches import RecordBatch, split_batches


def partition_directory(cluster: ProcessCluster, topic: str, partition: int) -> Path:
    """Return the directory of a partition, on any broker."""
    (found,) = (cluster.directory.root / "data").glob(f"broker-*/{topic}-{partition}")
    return found


def batches_on_disk(cluster: ProcessCluster, topic: str, partition: int) -> list[RecordBatch]:
    """Return every batch in the segments of a partition."""
    segments = sorted(partition_directory(cluster, topic, partition).glob("*.log"))
    return [batch for segment in segments for batch in split_batches(segment.read_bytes())]
