"""One snapshot for all partitions of a server: the producers, and the vector of offsets up to which
they are recorded.

After a crash each log is replayed from its offset in the vector. A log that ends before this offset
was truncated meanwhile: then the partition's part of the snapshot is ignored, and its log is
replayed from the beginning.
Source: the lease_pid draft.
"""

from collections.abc import Mapping

from kraftsim.core.lease_pid.lease_tables import LeasedProducerEntry
from kraftsim.core.lease_pid.leased_partition import LeasedPartition
from protocol.lease_pid.stored import StoredPartition, StoredProducer, StoredSnapshot

Where = tuple[str, int]
"""Topic and partition."""


def snapshot_of(partitions: Mapping[Where, tuple[LeasedPartition, int]]) -> StoredSnapshot:
    """Return the state of all partitions, each with its offset (exclusive)."""
    snapshot = StoredSnapshot()
    for index, ((topic, partition), (leased, next_offset)) in enumerate(partitions.items()):
        snapshot.partitions.append(
            StoredPartition(topic=topic, partition=partition, next_offset=next_offset)
        )
        for entry in leased.entries():
            snapshot.producers.append(
                StoredProducer(
                    partition_index=index,
                    producer_id=entry.producer_id,
                    generation=entry.generation,
                    sequence_high_watermark=entry.sequence_high_watermark,
                    first_seen_ms=entry.first_seen_ms,
                    last_seen_ms=entry.last_seen_ms,
                )
            )
    return snapshot


def restore(
    snapshot: StoredSnapshot | None, where: Where, leased: LeasedPartition, end_offset: int
) -> int:
    """Restore a partition from the snapshot; return the offset from which its log has to be
    replayed.
    """
    leased.restore(())
    for index, stored in enumerate(snapshot.partitions if snapshot is not None else ()):
        if (stored.topic, stored.partition) == where and stored.next_offset <= end_offset:
            assert snapshot is not None, "it has this partition"
            leased.restore(
                LeasedProducerEntry(
                    producer.producer_id,
                    producer.generation,
                    producer.sequence_high_watermark,
                    producer.first_seen_ms,
                    producer.last_seen_ms,
                )
                for producer in snapshot.producers
                if producer.partition_index == index
            )
            return stored.next_offset
    return 0
