"""A transaction marker in one partition: the control batch that a transaction coordinator writes.

Source: KIP-98, MemoryRecords.withEndTransactionMarker.
"""

from dataclasses import dataclass

from kraftsim.producer_state.rules_manager import marker_of
from protocol.batches import RecordBatch
from protocol.control_records import build_transaction_marker


@dataclass(frozen=True, slots=True, kw_only=True)
class EndMarker:
    """`coordinator_epoch`: the leader epoch of the coordinator's partition, which fences older
    coordinators.

    `transaction_version`: 2 if the epoch was bumped for this marker; it is not stored in the batch.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int = 0

    def batch(self, now_ms: int) -> RecordBatch:
        """Return the control batch. `now_ms` is the wall clock."""
        built = build_transaction_marker(
            commits=self.is_commit,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            coordinator_epoch=self.coordinator_epoch,
            timestamp=now_ms,
        )
        return RecordBatch(built)


def end_marker_of(batch: RecordBatch) -> EndMarker | None:
    """Return the marker of a control batch; None if compaction removed it.

    Raises MalformedBatch.
    """
    marker = marker_of(batch)
    if marker is None:
        return None
    return EndMarker(
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        is_commit=not marker.is_abort,
    )
