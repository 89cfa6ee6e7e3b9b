"""A leader's batch with its assigned offsets, before it is written.   Source: UnifiedLog.append."""

from kraftsim.core.partitions.end_marker import EndMarker
from protocol.batches import RecordBatch, crc_of


class AppendDecision:
    """A batch with its offsets.

    Write `chunks()`, then call `apply_append`; no other append may come in between.
    """

    __slots__ = (
        "_stamped",
        "append_timestamp",
        "batch",
        "first_offset",
        "last_offset",
        "leader_epoch",
        "marker",
    )

    def __init__(
        self,
        batch: RecordBatch,
        first_offset: int,
        leader_epoch: int,
        append_timestamp: int | None,
        marker: EndMarker | None = None,
    ) -> None:
        self.batch = batch
        self.marker = marker
        """The marker, if the batch ends a transaction; None for records."""
        self.first_offset = first_offset
        self.last_offset = first_offset + batch.last_offset_delta
        self.leader_epoch = leader_epoch
        self.append_timestamp = append_timestamp
        """The broker's wall clock with LogAppendTime, else None."""
        self._stamped = (
            None
            if append_timestamp is None
            else batch.with_log_append_time(first_offset, leader_epoch, append_timestamp)
        )

    @property
    def max_timestamp(self) -> int:
        """The maximum timestamp of the batch as it is appended."""
        return self.batch.max_timestamp if self.append_timestamp is None else self.append_timestamp

    def chunks(self) -> list[bytes | memoryview]:
        """Return the bytes to append."""
        if self._stamped is None:
            return self.batch.with_base_offset(self.first_offset, self.leader_epoch)
        return self._stamped

    @property
    def crc(self) -> int:
        """The checksum of the batch as it is appended: not the producer's if the broker sets the
        timestamp.
        """
        return self.batch.crc if self._stamped is None else crc_of(self._stamped[0])
