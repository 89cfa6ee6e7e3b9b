"""read_committed filtering on the client: a broker returns all batches up to the last stable
offset, with the list of aborted transactions.

Source: KIP-98, org.apache.kafka.clients.consumer.internals.CompletedFetch.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from protocol.batches import RecordBatch
from protocol.control_records import ControlType, control_type


class Aborted(NamedTuple):
    """An aborted transaction of a producer, by its first offset."""

    producer_id: int
    first_offset: int


def committed_batches(
    batches: Iterable[RecordBatch], aborted: Sequence[Aborted]
) -> Iterator[RecordBatch]:
    """Yield the data batches of committed transactions, in order.

    The list may be unordered; a marker ends its producer's transaction.
    """
    waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    producers: set[int] = set()  # for membership only
    for batch in batches:
        while waiting and waiting[-1].first_offset <= batch.last_offset:
            producers.add(waiting.pop().producer_id)
        if batch.is_control:
            if _is_abort(batch):
                producers.discard(batch.producer_id)
            continue
        if not (batch.is_transactional and batch.producer_id in producers):
            yield batch


def _is_abort(batch: RecordBatch) -> bool:
    return any(
        control_type(None if record.key is None else bytes(record.key)) is ControlType.ABORT
        for record in batch.records()
    )
