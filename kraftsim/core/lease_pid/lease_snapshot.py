"""One snapshot for all partitions of a server: the map of producers, and the vector of offsets up to which it is true.

After a crash each log is replayed from its place in the vector. A log that ends before its place was cut meanwhile: then what the snapshot says of
that partition counts for nothing, and its log is replayed from the beginning.   Source: the lease_pid draft.
"""

from collections.abc import Mapping

from kraftsim.core.lease_pid.lease_tables import LeasedProducerEntry
from kraftsim.core.lease_pid.leased_partition import LeasedPartition
from protocol.lease_pid.stored import StoredPartition, StoredProducer, StoredSnapshot

Where = tuple[str, int]
"""Topic and partition."""


def snapshot_of(partitions: Mapping[Where, tuple[LeasedPartition, int]]) -> StoredSnapshot:
    """Return what is known of all partitions, each with the offset below which it is."""
    snapshot = StoredSnapshot()
    for index, ((topic, partition), (leased, next_offset)) in enumerate(partitions.items()):
        snapshot.partitions.append(StoredPartition(topic=topic, partition=partition, next_offset=next_offset))
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


def restore(snapshot: StoredSnapshot | None, where: Where, leased: LeasedPartition, end_offset: int) -> int:
    """Let a partition know what the snapshot says of it; return from which offset its log is to be replayed."""
    leased.restore(())
    for index, stored in enumerate(snapshot.partitions if snapshot is not None else ()):
        if (stored.topic, stored.partition) == where and stored.next_offset <= end_offset:
            assert snapshot is not None, "its partitions were looked at"
            leased.restore(
                LeasedProducerEntry(
                    producer.producer_id, producer.generation, producer.sequence_high_watermark, producer.first_seen_ms, producer.last_seen_ms
                )
                for producer in snapshot.producers
                if producer.partition_index == index
            )
            return stored.next_offset
    return 0
