"""The lease_pid request on the partition leader.

It reads the partition's producer state, and does not change it.

As a lease is not recorded, two requests for the same id before either producer has written get the
same generation: neither fences the other.
Source: the lease_pid draft.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from kraftsim.core.decision import Refusal
from kraftsim.core.lease_pid.id_blocks import IdReserve
from kraftsim.core.lease_pid.leased_partition import LeasedPartition, generation_after
from kraftsim.core.lease_pid.readings import AskedExpiry, NextGeneration, Readings, SequenceOfLease
from kraftsim.producer_state.rules_entries import increment_sequence
from protocol.errors import ErrorCode
from protocol.lease_pid.leasing import ASKS_FOR_ONE, NOT_IDEMPOTENT


class NeedsIds(Enum):
    """The reserve is empty: take another block from the counter, then retry."""

    NEEDS_IDS = "needs ids"


NEEDS_IDS = NeedsIds.NEEDS_IDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The lease response.

    `sequence_number` is the next one of the partition, or (a reading) its last one.
    """

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
    """Grant a lease of a new id, or of a known one; only the reserve changes.

    Fails with UNKNOWN_PRODUCER_ID for an id without messages, or an expired one, and
    INVALID_REQUEST for id 0.
    """
    readings = partition.readings
    granted_ms = granted_expiry(readings, expire_ms)
    if producer_id == NOT_IDEMPOTENT:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            "id 0 is for messages without sequence numbers and cannot be leased",
        )
    if producer_id == ASKS_FOR_ONE:
        claimed = reserve.claim()
        if claimed is None:
            return NEEDS_IDS
        return Lease(
            producer_id=claimed,
            generation=drawn_generation(),
            sequence_number=0,
            expire_ms=granted_ms,
        )
    entry = partition.known(producer_id)
    if entry is None:
        return Refusal(
            ErrorCode.UNKNOWN_PRODUCER_ID,
            f"producer {producer_id} has written nothing here, or has expired",
        )
    leased_sequence = _leased_sequence(readings, entry.sequence_high_watermark)
    if is_check:
        return Lease(
            producer_id=producer_id,
            generation=entry.generation,
            sequence_number=leased_sequence,
            expire_ms=granted_ms,
        )
    begins_at_zero = readings.next_generation is NextGeneration.BEGINS_AT_ZERO
    return Lease(
        producer_id=producer_id,
        generation=generation_after(entry.generation),
        sequence_number=0 if begins_at_zero else leased_sequence,
        expire_ms=granted_ms,
    )


def _leased_sequence(readings: Readings, high_watermark: int) -> int:
    if readings.sequence_of_lease is SequenceOfLease.HIGH_WATERMARK:
        return high_watermark
    return increment_sequence(high_watermark, 1)


def granted_expiry(readings: Readings, asked_ms: int) -> int:
    """Return the expiry of a lease; the requested one is used only by readings that allow it."""
    match readings.asked_expiry:
        case AskedExpiry.IGNORED:
            return readings.expire_ms
        case AskedExpiry.CAPPED:
            return min(asked_ms, readings.expire_ms) if asked_ms > 0 else readings.expire_ms
        case AskedExpiry.HONOURED:
            return asked_ms if asked_ms > 0 else readings.expire_ms
