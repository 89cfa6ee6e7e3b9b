"""What the leader of a partition answers to lease_pid. It looks at what the partition knows, and changes nothing of it.

Since a lease leaves no trace, two that ask for the same id before either has written get the same generation: neither shuts the other out.
Source: the lease_pid draft.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from kraftsim.core.decision import Refusal
from kraftsim.core.lease_pid.id_blocks import IdReserve
from kraftsim.core.lease_pid.leased_partition import LeasedPartition, generation_after
from kraftsim.core.lease_pid.readings import AskedExpiry, NextGeneration, Readings, SequenceOfLease
from kraftsim.core.producer_state.sequence import increment_sequence
from protocol.errors import ErrorCode
from protocol.lease_pid.leasing import ASKS_FOR_ONE, NOT_IDEMPOTENT


class NeedsIds(Enum):
    """The reserve is empty: take another block from the counter, then ask again."""

    NEEDS_IDS = "needs ids"


NEEDS_IDS = NeedsIds.NEEDS_IDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """What a producer may count on. `sequence_number` is the next one that the partition takes, or (a reading) the last one that it has."""

    producer_id: int
    generation: int
    sequence_number: int
    expire_ms: int


def decide_lease(
    partition: LeasedPartition,
    reserve: IdReserve,
    *,
    producer_id: int,
    expire_ms: int,
    is_check: bool,
    drawn_generation: Callable[[], int],
) -> Lease | Refusal | NeedsIds:
    """Grant a lease of a new id, or of one that is known; only the reserve changes.

    Comes back with UNKNOWN_PRODUCER_ID for an id that nobody has written with, or that has expired, and INVALID_REQUEST for id 0.
    """
    readings = partition.readings
    granted_ms = granted_expiry(readings, expire_ms)
    if producer_id == NOT_IDEMPOTENT:
        return Refusal(ErrorCode.INVALID_REQUEST, "id 0 is for messages that are not numbered: nobody leases it")
    if producer_id == ASKS_FOR_ONE:
        claimed = reserve.claim()
        if claimed is None:
            return NEEDS_IDS
        return Lease(producer_id=claimed, generation=drawn_generation(), sequence_number=0, expire_ms=granted_ms)
    entry = partition.known(producer_id)
    if entry is None:
        return Refusal(ErrorCode.UNKNOWN_PRODUCER_ID, f"producer {producer_id} has written nothing here, or was forgotten")
    told_sequence = _told_sequence(readings, entry.sequence_high_watermark)
    if is_check:
        return Lease(producer_id=producer_id, generation=entry.generation, sequence_number=told_sequence, expire_ms=granted_ms)
    begins_at_zero = readings.next_generation is NextGeneration.BEGINS_AT_ZERO
    return Lease(
        producer_id=producer_id,
        generation=generation_after(entry.generation),
        sequence_number=0 if begins_at_zero else told_sequence,
        expire_ms=granted_ms,
    )


def _told_sequence(readings: Readings, high_watermark: int) -> int:
    if readings.sequence_of_lease is SequenceOfLease.HIGH_WATERMARK:
        return high_watermark
    return increment_sequence(high_watermark, 1)


def granted_expiry(readings: Readings, asked_ms: int) -> int:
    """Return for how long a lease is given; what is asked for counts only in readings that say so."""
    match readings.asked_expiry:
        case AskedExpiry.IGNORED:
            return readings.expire_ms
        case AskedExpiry.CAPPED:
            return min(asked_ms, readings.expire_ms) if asked_ms > 0 else readings.expire_ms
        case AskedExpiry.HONOURED:
            return asked_ms if asked_ms > 0 else readings.expire_ms
