"""The memory that each design needs per producer and partition, as the interpreter allocates it.

Source: see `plan.py`.
"""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Final

from kraftsim.lease_pid.rules_broker import LeasedPartition, Lookup, Readings
from kraftsim.producer_state.rules_entries import ProducerStatePolicy
from kraftsim.producer_state.rules_manager import LatestBatchStateManager, ProducerStateManager
from protocol.lease_pid.messages import LeasedMessage
from protocol.records.batches import RecordBatch, build_batch
from protocol.records.record import Record

PRODUCERS: Final = 5000
BATCHES_EACH: Final = 6


def bytes_per_producer() -> dict[str, float]:
    """Return the bytes per producer, for 5,000 producers with six batches each, by data
    structure.
    """
    return {
        "Kafka: five batches": _measured(lambda: _kafka(ProducerStateManager)),
        "KIP-758: the latest batch": _measured(lambda: _kafka(LatestBatchStateManager)),
        "lease_pid: a list": _measured(lambda: _leased(Lookup.REPAIRED_LIST)),
        "lease_pid: a table": _measured(lambda: _leased(Lookup.TABLE)),
    }


def _measured(make: Callable[[], object]) -> float:
    make()  # allocate once what does not depend on producers
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = make()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        del kept
    finally:
        tracemalloc.stop()
    return (after - before) / PRODUCERS


def _kafka(kind: type[ProducerStateManager]) -> ProducerStateManager:
    state = kind(ProducerStatePolicy())
    for producer_id in range(PRODUCERS):
        for sequence in range(BATCHES_EACH):
            batch = build_batch(
                [Record(0, 1_700_000_000_000, b"k", b"v", ())],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
            )
            state.apply(RecordBatch(batch), producer_id * BATCHES_EACH + sequence)
    return state


def _leased(lookup: Lookup) -> LeasedPartition:
    partition = LeasedPartition(Readings(lookup=lookup))
    for producer_id in range(1, PRODUCERS + 1):
        for sequence in range(BATCHES_EACH):
            message = LeasedMessage(
                producer_id=producer_id, generation=producer_id * 7919, sequence_number=sequence
            )
            partition.apply(message, 1_700_000_000_000 + sequence)
    return partition
