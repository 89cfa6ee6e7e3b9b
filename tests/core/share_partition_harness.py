"""What tests of share-partitions share: a log of batches, and a short way to ask for them."""

from collections.abc import Sequence

from kraftsim.events.event import Event
from kraftsim.share_groups.rules_share_acquisition import (
    AbortedRange,
    AcquireMode,
    AcquireRequest,
    OffsetsAcquired,
    acquire,
)
from kraftsim.share_groups.rules_share_partition import ShareLimits, SharePartition, SharePhase
from kraftsim.share_groups.rules_share_states import SharePartitionKey, StateBatch
from protocol.records.batches import NO_PRODUCER_ID

KEY = SharePartitionKey("workers", b"t" * 16, 0)
LIMITS = ShareLimits()
LOCK_MS = LIMITS.record_lock_duration_ms


class LogBatch:
    """A record batch as the rules see it."""

    def __init__(
        self, base_offset: int, last_offset: int, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.producer_id = producer_id
        self.is_control = False

    @property
    def is_transactional(self) -> bool:
        """Whether it is part of a transaction."""
        return self.producer_id != NO_PRODUCER_ID


def log_of(*ranges: tuple[int, int]) -> list[LogBatch]:
    """Return batches with these first and last offsets."""
    return [LogBatch(*each) for each in ranges]


class ShareUnderTest:
    """A share-partition, its events, and the time."""

    def __init__(
        self,
        log: Sequence[LogBatch] = (),
        *,
        start_offset: int = 0,
        states: Sequence[StateBatch] = (),
        limits: ShareLimits = LIMITS,
    ) -> None:
        self.log = list(log)
        self.limits = limits
        self.now_ms = 0
        self.events: list[Event] = []
        self.partition = SharePartition(KEY, "orders", 3, self.events.append)
        self.partition.phase = SharePhase.INITIALIZING
        self.refused = self.partition.activate(7, start_offset, states)

    def read(self, offset: int, batches_max: int = 100) -> list[LogBatch]:
        """Return the batches from the one that contains an offset on."""
        return [batch for batch in self.log if batch.last_offset >= offset][:batches_max]

    def fetch(
        self,
        member_id: str = "a",
        *,
        records_max: int = 500,
        batch_size: int = 500,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
        batches_max: int = 100,
        aborted: Sequence[AbortedRange] = (),
        markers: Sequence[int] = (),
    ) -> tuple[OffsetsAcquired, ...]:
        """Fetch from where the share-partition wants to, and return what was acquired."""
        if not self.partition.can_acquire(self.limits):
            return ()
        offset = self.partition.next_fetch_offset()
        asked = AcquireRequest(
            member_id=member_id,
            mode=mode,
            batch_size=batch_size,
            records_max=records_max,
            fetch_offset=offset,
            batches=self.read(offset, batches_max),
            aborted=aborted,
            abort_markers=frozenset(markers),
        )
        return acquire(self.partition, asked, self.limits, self.now_ms).ranges

    def ranges(
        self, member_id: str = "a", *, records_max: int = 500, batch_size: int = 500, mode: int = 0
    ) -> list[tuple[int, int, int]]:
        """The same as tuples of first offset, last offset and delivery count."""
        found = self.fetch(
            member_id, records_max=records_max, batch_size=batch_size, mode=AcquireMode(mode)
        )
        return [(each.first_offset, each.last_offset, each.delivery_count) for each in found]
