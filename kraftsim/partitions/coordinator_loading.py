"""Loads a coordinator partition: reads the whole log, one buffer at a time, and yields to other
tasks in between.

Source: kafka.coordinator.group.GroupMetadataManager.doLoadGroupsAndOffsets,
TransactionStateManager.loadTransactionMetadata.
"""

import asyncio
from collections.abc import Callable

from kraftsim.partitions.hosted_partition import HostedPartition
from protocol.malformed import MalformedMessage
from protocol.records.batches import RecordBatch, split_batches


async def read_back(
    hosted: HostedPartition,
    *,
    buffer_size: int,
    is_wanted: Callable[[], bool],
    replay: Callable[[RecordBatch], None],
) -> int:
    """Replay a log from its start to its end, and return the next offset. Raises OSError.

    Markers can be appended during loading: when this returns, everything in the log has been
    replayed. A batch that cannot be read ends the loading, and the batches before it are kept, as
    in Kafka; loading also ends when `is_wanted` returns False.
    """
    log = hosted.log
    offset = log.log_start_offset
    try:
        while offset < log.log_end_offset and is_wanted():
            read = log.read(offset, buffer_size, log.log_end_offset)
            next_offset = offset
            for batch in split_batches(read):
                replay(batch)
                next_offset = batch.next_offset
            if next_offset == offset:
                break
            offset = next_offset
            await asyncio.sleep(0)
    except MalformedMessage:
        pass
    return offset
