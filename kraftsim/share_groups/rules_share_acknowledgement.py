"""Acknowledgement: what a member reports of records that it has acquired, and what happens to its
records when it leaves.

A request is valid for a share-partition as a whole or not at all: at the first invalid range
everything is taken back, except renewals. An offset may be acknowledged once, by the member that
has acquired it, while its lock lasts.

Source: KIP-932, KIP-1222; kafka.server.share.SharePartition.{acknowledge, releaseAcquiredRecords}.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kraftsim.core.decision import Refusal
from kraftsim.share_groups.rules_share_partition import (
    ShareLimits,
    SharePartition,
    ShareStateChange,
    StateWrite,
)
from kraftsim.share_groups.rules_share_records import (
    NO_MEMBER,
    InFlightBatch,
    InFlightState,
    RecordState,
)
from kraftsim.share_groups.rules_share_states import StateBatch
from protocol.errors import ErrorCode
from protocol.messages.k78_share_fetch import AcknowledgeType

STATES: Final = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}


class Acknowledgement(NamedTuple):
    """Offsets, both inclusive, and their acknowledgement types: one for all, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


def acknowledge(
    partition: SharePartition,
    member_id: str,
    acknowledgements: Sequence[Acknowledgement],
    limits: ShareLimits,
    now_ms: int,
) -> StateWrite | Refusal | None:
    """Apply the acknowledgements of a member. Returns what to store; None: nothing.

    Refused with INVALID_RECORD_STATE (not acquired by this member, or its lock ended) or
    INVALID_REQUEST (offsets that are not in flight, an unknown type).
    """
    work = _Acknowledging(partition, member_id, limits, now_ms)
    for each in acknowledgements:
        refusal = work.apply(each)
        if refusal is not None:
            partition.take_back(work.changes, now_ms)
            return refusal
    return work.result()


def release(
    partition: SharePartition, member_id: str, limits: ShareLimits, now_ms: int
) -> StateWrite | Refusal | None:
    """A member's session has closed: make what it has acquired available. Returns what to store.

    Refused with INVALID_RECORD_STATE while an earlier change is being stored.
    """
    work = _Acknowledging(partition, member_id, limits, now_ms)
    for batch in partition.cache:
        refusal = work.release(batch)
        if refusal is not None:
            partition.take_back(work.changes, now_ms)
            return refusal
    return work.result()


class _Acknowledging:
    """The changes of one request."""

    def __init__(
        self, partition: SharePartition, member_id: str, limits: ShareLimits, now_ms: int
    ) -> None:
        self._partition = partition
        self._member_id = member_id
        self._limits = limits
        self._now_ms = now_ms
        self.changes: list[ShareStateChange] = []

    def result(self) -> StateWrite | None:
        """Return what to store, if anything."""
        if not self.changes:
            return None
        return self._partition.write([change.stored for change in self.changes], self.changes)

    # Acknowledgements
    # ----------------------------------------------------------------------------------------------

    def apply(self, asked: Acknowledgement) -> Refusal | None:
        """Apply one range; what is below the start offset is ignored."""
        for each in asked.types:
            if each not in AcknowledgeType.__members__.values():
                return Refusal(
                    ErrorCode.INVALID_REQUEST, f"Invalid acknowledge type: {list(asked.types)}"
                )
        partition = self._partition
        if asked.last_offset < partition.start_offset:
            return None
        batches = self._find(asked)
        if isinstance(batches, Refusal):
            return batches
        for batch in batches:
            if batch.last_offset < partition.start_offset:
                continue
            refusal = self._apply_to(batch, asked)
            if refusal is not None:
                return refusal
        return None

    def _find(self, asked: Acknowledgement) -> list[InFlightBatch] | Refusal:
        partition = self._partition
        floor = partition.cache.floor(asked.first_offset)
        if floor is None and asked.first_offset < partition.start_offset <= asked.last_offset:
            floor = partition.cache.floor(partition.start_offset)
        if floor is None:
            return Refusal(
                ErrorCode.INVALID_RECORD_STATE,
                "Batch record not found. The request batch offsets are not found in the cache.",
            )
        batches = partition.cache.between(floor.first_offset, asked.last_offset)
        if batches[-1].last_offset < asked.first_offset:
            return Refusal(
                ErrorCode.INVALID_REQUEST,
                "Batch record not found. The first offset in request is past acquired records.",
            )
        if asked.last_offset > batches[-1].last_offset:
            return Refusal(
                ErrorCode.INVALID_REQUEST,
                "Batch record not found. The last offset in request is past acquired records.",
            )
        return batches

    def _apply_to(self, batch: InFlightBatch, asked: Acknowledgement) -> Refusal | None:
        whole = batch.whole
        if whole is not None:
            refusal = self._refuse_whole(whole)
            if refusal is not None:
                return refusal
            is_covered = (
                asked.first_offset <= batch.first_offset and batch.last_offset <= asked.last_offset
            )
            if is_covered and len(asked.types) <= 1 and not self._partition.begins_within(batch):
                return self._settle(
                    batch.first_offset, batch.last_offset, whole, AcknowledgeType(asked.types[0])
                )
            if whole.state is not RecordState.ACQUIRED:
                return _invalid_state(
                    "The batch cannot be acknowledged. The subset batch is not in the acquired "
                    "state."
                )
            batch.split()
        return self._apply_to_offsets(batch, asked)

    def _refuse_whole(self, whole: InFlightState) -> Refusal | None:
        if whole.member_id == NO_MEMBER:
            return _invalid_state(
                "The batch cannot be acknowledged. The batch is not in the acquired state."
            )
        if whole.member_id != self._member_id:
            return _invalid_state("Member is not the owner of batch record")
        if whole.is_changing:
            return _invalid_state(
                "The record state is invalid. The acknowledgement of delivery could not be "
                "completed."
            )
        return None

    def _apply_to_offsets(self, batch: InFlightBatch, asked: Acknowledgement) -> Refusal | None:
        first = max(asked.first_offset, self._partition.start_offset, batch.first_offset)
        for offset in range(first, min(asked.last_offset, batch.last_offset) + 1):
            state = batch.offsets[offset]
            if state.state is not RecordState.ACQUIRED:
                return _invalid_state(
                    "The offset cannot be acknowledged. The offset is not acquired."
                )
            if state.is_changing:
                return _invalid_state(
                    "The record state is invalid. The acknowledgement of delivery could not be "
                    "completed."
                )
            if state.member_id != self._member_id:
                return _invalid_state("Member is not the owner of offset")
            types = asked.types
            given = types[offset - asked.first_offset] if len(types) > 1 else types[0]
            refusal = self._settle(offset, offset, state, AcknowledgeType(given))
            if refusal is not None:
                return refusal
        return None

    def _settle(
        self, first_offset: int, last_offset: int, state: InFlightState, given: AcknowledgeType
    ) -> Refusal | None:
        if state.state is not RecordState.ACQUIRED:
            return _invalid_state(
                "The batch cannot be acknowledged. The batch is not in the acquired state."
            )
        if given is AcknowledgeType.RENEW:
            return self._renew(first_offset, last_offset, state)
        if not state.begin_change(STATES[given], self._limits.delivery_count_max, NO_MEMBER):
            return _invalid_state("Unable to acknowledge records for the batch")
        self._changed(first_offset, last_offset, state)
        if state.state.is_terminal:
            self._partition.delivery_complete_count += last_offset - first_offset + 1
        return None

    def _renew(self, first_offset: int, last_offset: int, state: InFlightState) -> Refusal | None:
        if not self._limits.allows_renewal:
            return _invalid_state("Renewing acquisition locks is not enabled for the group.")
        deadline_ms = self._now_ms + self._limits.record_lock_duration_ms
        state.lock_deadline_ms = deadline_ms
        self._partition.lock(first_offset, last_offset, deadline_ms)
        return None

    def _changed(self, first_offset: int, last_offset: int, state: InFlightState) -> None:
        stored = StateBatch(first_offset, last_offset, state.state, state.delivery_count)
        self.changes.append(ShareStateChange(state, stored))

    # Release
    # ----------------------------------------------------------------------------------------------

    def release(self, batch: InFlightBatch) -> Refusal | None:
        """Release what the member has acquired of a batch."""
        whole = batch.whole
        if (
            whole is not None
            and whole.state is RecordState.ACQUIRED
            and whole.member_id == self._member_id
            and self._partition.begins_within(batch)
        ):
            batch.split()
        is_whole = batch.whole is not None
        for first_offset, last_offset, state in batch.states():
            if state.member_id != self._member_id or state.state is not RecordState.ACQUIRED:
                continue
            is_below = last_offset < self._partition.start_offset
            began = state.begin_change(
                RecordState.ARCHIVED if is_below else RecordState.AVAILABLE,
                self._limits.delivery_count_max,
                NO_MEMBER,
                counted=0 if self._limits.counts_abandoned else -1,
            )
            if not began:
                records = "batch" if is_whole else "offset"
                return _invalid_state(f"Unable to release acquired records for the {records}")
            self._changed(first_offset, last_offset, state)
            if state.state.is_terminal:
                self._partition.delivery_complete_count += self._partition.counted(
                    first_offset, last_offset
                )
        return None


def _invalid_state(why: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_RECORD_STATE, why)
