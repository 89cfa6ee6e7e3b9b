"""The part of a Fetch response that is read from remote storage.

Source: kafka.server.DelayedRemoteFetch, RemoteLogReader.
"""

from dataclasses import dataclass

from kraftsim.core.decision import Refusal
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.tiered_storage.tiered_storage import TieredBroker
from protocol.messages.k01_fetch import AbortedTransaction, PartitionData

NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class RemoteWish:
    """A read from an offset on with a size limit; its records go into the response row of the
    partition.
    """

    hosted: HostedPartition
    answer: PartitionData
    offset: int
    bytes_max: int
    reads_committed: bool


async def fill_from_remote(broker: TieredBroker, wish: RemoteWish, *, at_least_one: bool) -> int:
    """Read the records into the response, and return their size; 0 if the read timed out."""
    assert broker.tiered is not None, "a tiered log exists only if remote storage is enabled"
    found = await broker.tiered.read(
        wish.hosted,
        wish.offset,
        wish.bytes_max,
        at_least_one=at_least_one,
        reads_committed=wish.reads_committed,
    )
    answer = wish.answer
    if isinstance(found, Refusal):
        answer.error_code = found.error
        answer.high_watermark = answer.last_stable_offset = answer.log_start_offset = NO_OFFSET
        answer.aborted_transactions = None
        return 0
    if found is None:
        return 0
    answer.records = found.records
    if wish.reads_committed:
        answer.aborted_transactions = [
            AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in found.aborted
        ]
    return len(found.records)
