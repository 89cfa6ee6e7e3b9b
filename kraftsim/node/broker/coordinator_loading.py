"""How a coordinator comes to know what is in its partition: it reads the whole log, a buffer at a time, and lets others work between.

Source: kafka.coordinator.group.GroupMetadataManager.doLoadGroupsAndOffsets, TransactionStateManager.loadTransactionMetadata.
"""

import asyncio
from collections.abc import Callable

from kraftsim.node.broker.hosted_partition import HostedPartition
from protocol.batches import RecordBatch, split_batches
from protocol.malformed import MalformedMessage


async def read_back(hosted: HostedPartition, *, buffer_size: int, is_wanted: Callable[[], bool], replay: Callable[[RecordBatch], None]) -> int:
    """Replay a log from its beginning to its end, and return how far that went. Raises OSError.

    Markers may be written meanwhile: when this returns, all that is in the log has been replayed. What cannot be read ends it, and what came before
    it counts, as in Kafka; so does `is_wanted`, once it says no.
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
