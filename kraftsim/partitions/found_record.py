"""Search for a record by timestamp: batch by batch, with slow batches searched in a thread.

Source: FileRecords.TimestampAndOffset, UnifiedLog.fetchOffsetByTimestamp.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeAlias

from kraftsim.partitions.rules_scan_work import takes_long
from kraftsim.world.interface import World
from protocol.records.batches import RecordBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRecord:
    """A record found by its timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class FoundCandidate:
    """A batch that may contain the first record with this timestamp or a greater one."""

    batch: RecordBatch
    timestamp: int


Search: TypeAlias = Generator[FoundCandidate, FoundRecord | None, FoundRecord | None]
"""Yields batches to be searched, receives the record found in each, and returns the result."""


def first_record(batch: RecordBatch, timestamp: int) -> FoundRecord | None:
    """Return the first record of a batch with this timestamp or a greater one.

    Raises MalformedBatch for undecodable records.
    """
    for record in batch.records():
        if record.timestamp >= timestamp:
            return FoundRecord(
                offset=record.offset,
                timestamp=record.timestamp,
                leader_epoch=batch.partition_leader_epoch,
            )
    return None


async def first_record_aside(
    world: World, batch: RecordBatch, timestamp: int
) -> FoundRecord | None:
    """The same; a slow batch is searched in a thread."""
    if takes_long(batch.view()):
        return await world.aside(lambda: first_record(batch, timestamp))
    return first_record(batch, timestamp)


def searched(search: Search) -> FoundRecord | None:
    """Run a search to its end in one turn. Raises MalformedBatch and OSError."""
    try:
        candidate = next(search)
        while True:
            candidate = search.send(first_record(candidate.batch, candidate.timestamp))
    except StopIteration as end:
        found: FoundRecord | None = end.value
        return found
