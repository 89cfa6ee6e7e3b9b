"""Parses the records of committed batches, a few per event-loop turn: a batch of the metadata log
may contain 10,000.

The parsed records of a batch are applied in one turn, so that readers never see a part of an atomic
batch.
Source: org.apache.kafka.image.loader.MetadataLoader, QuorumController.MAX_RECORDS_PER_USER_OP.
"""

import asyncio
from typing import Final

from protocol.metadata.registry import parse_record
from protocol.records.batches import RecordBatch
from protocol.schema import Message

RECORDS_PER_TURN: Final = 500
"""These take 3 to 5 ms; a smaller batch is parsed in one turn."""


async def parsed_records(batch: RecordBatch) -> list[tuple[Message, int]]:
    """Return (record, offset) of each record."""
    parsed: list[tuple[Message, int]] = []
    for record in batch.records():
        if parsed and not len(parsed) % RECORDS_PER_TURN:
            await asyncio.sleep(0)
        assert record.value is not None, "a metadata record has a value"
        parsed.append((parse_record(record.value), record.offset))
    return parsed
