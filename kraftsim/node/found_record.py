"""What a search by timestamp finds.   Source: FileRecords.TimestampAndOffset."""

from dataclasses import dataclass

from protocol.batches import RecordBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRecord:
    """A record that was looked for by its timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int


def first_record(batch: RecordBatch, timestamp: int) -> FoundRecord | None:
    """Return the first record of a batch with this timestamp or a greater one. Raises MalformedBatch for records that cannot be read."""
    for record in batch.records():
        if record.timestamp >= timestamp:
            return FoundRecord(offset=record.offset, timestamp=record.timestamp, leader_epoch=batch.partition_leader_epoch)
    return None
