"""One share-partition on its leader: what is in flight, where the group stands, and what has to be
stored.

Offsets below `start_offset` are done with; those from there to `end_offset` (inclusive) are in
flight: acquired at least once; records above it are available. The start offset moves over
everything that is acknowledged or archived, once that is stored.

A change by a member is kept back until the persister has stored it (`StateWrite`), and taken back
if that fails. A lock that has ended is stored too, but has ended even if that fails.

`rules_share_acquisition` and `rules_share_acknowledgement` change the states of this class.

Source: KIP-932, KIP-1191, KIP-1206, KIP-1222; kafka.server.share.SharePartition.
"""

import heapq
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, TypedDict

from msgspec import Struct

from kraftsim.core.decision import Refusal
from kraftsim.events.event import Event
from kraftsim.share_groups.events import (
    ShareLocksEnded,
    SharePartitionDropped,
    SharePartitionLoaded,
    ShareRecordsArchived,
    ShareStartOffsetMoved,
    ShareStateLoaded,
    ShareStateStored,
)
from kraftsim.share_groups.rules_share_records import (
    NO_MEMBER,
    InFlightBatch,
    InFlightCache,
    InFlightState,
    RecordState,
)
from kraftsim.share_groups.rules_share_states import SharePartitionKey, StateBatch
from protocol.errors import ErrorCode

DELIVERIES_BEFORE_THROTTLING_MIN: Final = 2
STORED_STATES: Final = (RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class ShareEventNames(TypedDict):
    """What all events of a share-partition begin with."""

    group_id: str
    topic: str
    topic_id: str
    partition: int
    load: int


class SharePhase(Enum):
    """The phases of a share-partition; FAILED and FENCED are the last ones."""

    EMPTY = "empty"
    INITIALIZING = "initializing"
    ACTIVE = "active"
    FAILED = "failed"
    FENCED = "fenced"


class ShareLimits(Struct, frozen=True, kw_only=True):
    """The settings of a group as they are now.

    `throttles_deliveries`: records that failed several times are delivered in ever smaller numbers.
    `counts_abandoned`: a delivery counts although the member's session ended (since 4.2).
    """

    record_lock_duration_ms: int = 30_000
    delivery_count_max: int = 5
    record_locks_max: int = 2000
    allows_renewal: bool = True
    throttles_deliveries: bool = True
    counts_abandoned: bool = True

    @property
    def throttled_from(self) -> int:
        """The delivery count from which deliveries are throttled."""
        return max(DELIVERIES_BEFORE_THROTTLING_MIN, -(-self.delivery_count_max // 2))


class ShareStateChange(Struct, frozen=True):
    """A state that is to be stored, and that of the record in memory."""

    state: InFlightState
    stored: StateBatch


class StateWrite(Struct, frozen=True, kw_only=True):
    """What the persister has to store; `changes` wait for it. Without changes nothing does."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    changes: tuple[ShareStateChange, ...] = ()


class _GapWindow:
    """Offsets between the start and the end offset of which the persister knows nothing: records
    that were available when the former leader ended.
    """

    __slots__ = ("end_offset", "first_offset")

    def __init__(self, first_offset: int, end_offset: int) -> None:
        self.first_offset = first_offset
        self.end_offset = end_offset


class SharePartition:
    """The state machine. `emit` gets its events; `now_ms` is monotonic time everywhere."""

    def __init__(
        self,
        key: SharePartitionKey,
        topic: str,
        leader_epoch: int,
        emit: Callable[[Event], None],
        load: int = 0,
    ) -> None:
        """`load` tells apart the share-partitions that this node has loaded."""
        self.key = key
        self.topic = topic
        self.leader_epoch = leader_epoch
        self.phase = SharePhase.EMPTY
        self.state_epoch = 0
        self.start_offset = 0
        self.end_offset = 0
        self.cache = InFlightCache()
        self.delivery_complete_count = 0
        """Records at or above the start offset that are acknowledged or archived."""
        self.load = load
        self.may_have_available = False
        """Whether there may be something available below the end offset."""
        self._emit = emit
        self._gaps: _GapWindow | None = None
        self._locks: list[tuple[int, int, int]] = []
        """Deadlines and ranges of locks, the earliest first; also of those that ended early."""

    # Initialization and the end
    # ----------------------------------------------------------------------------------------------

    def activate(
        self, state_epoch: int, start_offset: int, batches: Sequence[StateBatch]
    ) -> Refusal | None:
        """Begin with the stored state. Refused with UNKNOWN_SERVER_ERROR if that is no valid one;
        then the share-partition has failed.
        """
        assert self.phase is SharePhase.INITIALIZING, "it is read once"
        self.state_epoch, self.start_offset, self.end_offset = (
            state_epoch,
            start_offset,
            start_offset,
        )
        gap_offset: int | None = None
        previous_offset = start_offset - 1
        for stored in batches:
            is_valid = previous_offset < stored.first_offset <= stored.last_offset
            if not is_valid or stored.delivery_state not in STORED_STATES:
                self.phase = SharePhase.FAILED
                return Refusal(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"Failed to initialize the share partition {self.text}",
                )
            if gap_offset is None and stored.first_offset > previous_offset + 1:
                gap_offset = previous_offset + 1
            previous_offset = stored.last_offset
            state = RecordState(stored.delivery_state)
            batch = InFlightBatch(
                stored.first_offset,
                stored.last_offset,
                InFlightState(state, stored.delivery_count),
            )
            self.cache.put(batch)
            if state.is_terminal:
                self.delivery_complete_count += batch.size
        if self.cache:
            self.may_have_available = True
            self.end_offset = previous_offset
            if gap_offset is not None:
                self._gaps = _GapWindow(gap_offset, previous_offset)
        self._emit(
            SharePartitionLoaded(
                **self.names,
                leader_epoch=self.leader_epoch,
                state_epoch=state_epoch,
                start_offset=start_offset,
                has_gaps=gap_offset is not None,
            )
        )
        for stored in batches:
            self._emit(
                ShareStateLoaded(
                    **self.names,
                    state_epoch=state_epoch,
                    first_offset=stored.first_offset,
                    last_offset=stored.last_offset,
                    delivery_state=stored.delivery_state,
                    delivery_count=stored.delivery_count,
                )
            )
        self.phase = SharePhase.ACTIVE
        self.move_start_offset()
        return None

    def fence(self, reason: str) -> None:
        """End: another leader has it, or its group or topic is gone."""
        if self.phase is SharePhase.ACTIVE:
            self._emit(SharePartitionDropped(**self.names, reason=reason))
        self.phase = SharePhase.FENCED

    @property
    def is_active(self) -> bool:
        """Whether it serves members."""
        return self.phase is SharePhase.ACTIVE

    @property
    def text(self) -> str:
        """The share-partition in messages."""
        return f"{self.key.group_id}-{self.topic}-{self.key.partition}"

    @property
    def names(self) -> ShareEventNames:
        """The share-partition in events."""
        return {
            "group_id": self.key.group_id,
            "topic": self.topic,
            "topic_id": self.key.topic_id.hex(),
            "partition": self.key.partition,
            "load": self.load,
        }

    def emit(self, event: Event) -> None:
        """Emit an event of this share-partition."""
        self._emit(event)

    # What can be fetched
    # ----------------------------------------------------------------------------------------------

    @property
    def in_flight_count(self) -> int:
        """The number of offsets in flight."""
        return self.end_offset - self.start_offset + 1 if self.cache else 0

    def can_acquire(self, limits: ShareLimits) -> bool:
        """Return whether a fetch may find something to acquire."""
        return (
            self.next_fetch_offset() != self.end_offset + 1
            or self.in_flight_count < limits.record_locks_max
        )

    def next_fetch_offset(self) -> int:
        """Return where the next fetch begins: at something available, or at the end."""
        is_beyond = not self.cache or self.start_offset > self.cache.last.last_offset
        if is_beyond:
            self.may_have_available = False
            return self.end_offset
        if self.may_have_available:
            found = self._first_available()
            if found is not None:
                return found
            self.may_have_available = False
        return self.end_offset + 1

    def _first_available(self) -> int | None:
        gaps = self.active_gaps
        gap_offset = -1 if gaps is None else gaps.first_offset
        for batch in self.cache:
            if gaps is not None:
                if batch.first_offset > gap_offset:
                    return gap_offset
                gap_offset = max(batch.last_offset + 1, gap_offset)
            for first_offset, _, state in batch.states():
                if state.is_available:
                    return first_offset
        return None

    @property
    def active_gaps(self) -> _GapWindow | None:
        """The window in which there may be available records that are not in flight."""
        gaps = self._gaps
        return gaps if gaps is not None and gaps.end_offset == self.end_offset else None

    def pass_gaps(self, offset: int) -> None:
        """There is no gap below an offset any more."""
        gaps = self._gaps
        if gaps is None:
            return
        if gaps.end_offset == self.end_offset and offset <= gaps.end_offset:
            gaps.first_offset = offset
        else:
            self._gaps = None

    # Start offset
    # ----------------------------------------------------------------------------------------------

    def move_start_offset(self) -> bool:
        """Move the start offset over everything that is done with, and return whether it moved."""
        if not self._may_move():
            return False
        last_offset, complete_count = self._last_settled()
        if last_offset is None:
            return False
        before = self.start_offset
        if last_offset == self.cache.last.last_offset:
            self.start_offset = self.end_offset = last_offset + 1
            self.cache.clear()
            self.delivery_complete_count = 0
            self._started(before)
            return True
        holding = self.cache.floor(last_offset)
        assert holding is not None, "the offset is in flight"
        if last_offset == holding.last_offset:
            following = self.cache.after(last_offset)
            assert following is not None, "it is not the last batch"
            target = following.first_offset
            gaps = self.active_gaps
            if gaps is not None:
                target = min(gaps.first_offset, target)
            keep_from = following.first_offset
        else:
            target, keep_from = last_offset + 1, holding.first_offset
        self.start_offset = max(self.start_offset, target)
        self.delivery_complete_count -= complete_count
        self.cache.remove_below(keep_from)
        self._started(before)
        return True

    def _started(self, before: int) -> None:
        if self.start_offset > before:
            self._emit(
                ShareStartOffsetMoved(
                    **self.names,
                    state_epoch=self.state_epoch,
                    previous_offset=before,
                    start_offset=self.start_offset,
                )
            )

    def _may_move(self) -> bool:
        if not self.cache:
            return False
        at_start = self.cache.floor(self.start_offset)
        return at_start is not None and at_start.state_at(self.start_offset).is_settled

    def _last_settled(self) -> tuple[int | None, int]:
        """Return the last offset of those that are done with from the start on, and how many of
        them count.
        """
        last_offset: int | None = None
        count = 0
        gaps = self.active_gaps
        for batch in self.cache:
            if gaps is not None and batch.last_offset >= gaps.first_offset:
                break
            for first_offset, end_offset, state in batch.states():
                if not state.is_settled:
                    return last_offset, count
                last_offset = end_offset
                count += self.counted(first_offset, end_offset)
        return last_offset, count

    def counted(self, first_offset: int, last_offset: int) -> int:
        """Return how many offsets of a range are at or above the start offset."""
        return max(last_offset - max(self.start_offset, first_offset) + 1, 0)

    def on_log_start(self, log_start_offset: int) -> bool:
        """Records below the log start offset are gone: archive what no member has acquired, and
        begin behind them. Returns whether the start offset moved.
        """
        if log_start_offset <= self.start_offset:
            return False
        before = self.start_offset
        self._emit_archived(before, log_start_offset - 1)
        if not self.cache:
            self.start_offset = self.end_offset = log_start_offset
            self.delivery_complete_count = 0
            self._started(before)
            return True
        complete_count = sum(
            self._counted_below(first, last, log_start_offset)
            for batch in self.cache.between(-1, log_start_offset - 1)
            for first, last, state in batch.states()
            if state.state.is_terminal
        )
        if self.archive(
            self.start_offset,
            log_start_offset,
            self.cache.between(-1, log_start_offset - 1),
            RecordState.AVAILABLE,
            is_counted=False,
        ):
            self.may_have_available = True
        self.start_offset = log_start_offset
        self.delivery_complete_count -= complete_count
        self.end_offset = max(self.end_offset, log_start_offset)
        self._started(before)
        return True

    def _counted_below(self, first_offset: int, last_offset: int, end_offset: int) -> int:
        return max(min(end_offset - 1, last_offset) - max(self.start_offset, first_offset) + 1, 0)

    def archive(
        self,
        first_offset: int,
        end_offset: int,
        batches: Sequence[InFlightBatch],
        state: RecordState,
        *,
        is_counted: bool,
    ) -> bool:
        """Archive the offsets of [first_offset, end_offset) that have a state; return whether there
        were any.
        """
        found = False
        for batch in batches:
            if batch.first_offset >= end_offset:
                break
            whole = batch.whole
            if whole is not None and whole.state is not state:
                continue
            is_covered = batch.first_offset >= first_offset and batch.last_offset < end_offset
            if whole is not None and not is_covered:
                batch.split()
            for first, last, each in batch.states():
                if first < first_offset or last >= end_offset or each.state is not state:
                    continue
                each.archive()
                found = True
                if is_counted:
                    self.delivery_complete_count += last - first + 1
                if state is RecordState.ACQUIRED:
                    self.emit_lock_ended(first, last, each.state, "archived")
        return found

    def archive_stale(self, fetch_offset: int, first_offset: int) -> None:
        """A fetch at one offset found its first record at a later one: archive what is available
        in between.
        """
        if not self.cache or fetch_offset >= first_offset:
            return
        batches = [
            batch
            for batch in self.cache.overlapping(fetch_offset, first_offset - 1)
            if batch.first_offset < first_offset
        ]
        if batches and self.archive(
            fetch_offset, first_offset, batches, RecordState.AVAILABLE, is_counted=True
        ):
            self.may_have_available = True
            self._emit_archived(fetch_offset, first_offset - 1)

    def skip_to(self, first_offset: int) -> None:
        """Offsets below the first one that was read, and above those in flight, have no records."""
        following = self.end_offset + 1 if self.cache else self.end_offset
        if first_offset > following:
            self._emit_archived(following, first_offset - 1)

    def begin_at(self, first_offset: int) -> None:
        """The lowest offset in flight is the start offset."""
        before, self.start_offset = self.start_offset, first_offset
        self._started(before)

    def _emit_archived(self, first_offset: int, last_offset: int) -> None:
        self._emit(
            ShareRecordsArchived(**self.names, first_offset=first_offset, last_offset=last_offset)
        )

    # Locks
    # ----------------------------------------------------------------------------------------------

    def lock(self, first_offset: int, last_offset: int, deadline_ms: int) -> None:
        """Remember a lock of offsets, whose states have its deadline."""
        heapq.heappush(self._locks, (deadline_ms, first_offset, last_offset))

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next lock may end; None: there is none."""
        return self._locks[0][0] if self._locks else None

    def expire_locks(self, limits: ShareLimits, now_ms: int) -> StateWrite | None:
        """End the locks whose time is over: their records are available again, or archived if they
        were delivered too often. Returns what to store.
        """
        changed: list[StateBatch] = []
        while self._locks and self._locks[0][0] <= now_ms:
            _, first_offset, last_offset = heapq.heappop(self._locks)
            if self.is_active:
                self._expire(first_offset, last_offset, limits, now_ms, changed)
        return self.write(changed) if changed else None

    def _expire(
        self,
        first_offset: int,
        last_offset: int,
        limits: ShareLimits,
        now_ms: int,
        changed: list[StateBatch],
    ) -> None:
        for batch in self.cache.overlapping(first_offset, last_offset):
            whole = batch.whole
            if (
                whole is not None
                and whole.state is RecordState.ACQUIRED
                and self.begins_within(batch)
            ):
                batch.split()
            for first, last, state in batch.states():
                if last < first_offset or first > last_offset:
                    continue
                deadline_ms = state.lock_deadline_ms
                if (
                    state.state is not RecordState.ACQUIRED
                    or deadline_ms is None
                    or deadline_ms > now_ms
                ):
                    continue
                target = RecordState.ARCHIVED if last < self.start_offset else RecordState.AVAILABLE
                if not state.try_change(target, limits.delivery_count_max, NO_MEMBER):
                    continue
                changed.append(StateBatch(first, last, state.state, state.delivery_count))
                state.lock_deadline_ms = None
                self.emit_lock_ended(first, last, state.state, "expired")
                if state.is_settled:
                    self.delivery_complete_count += self.counted(first, last)
                else:
                    self.may_have_available = True

    def begins_within(self, batch: InFlightBatch) -> bool:
        """Return whether the start offset is inside a batch."""
        return batch.first_offset < self.start_offset <= batch.last_offset

    def emit_lock_ended(
        self, first_offset: int, last_offset: int, state: RecordState, reason: str
    ) -> None:
        """Emit that records are not acquired any more."""
        self._emit(
            ShareLocksEnded(
                **self.names,
                first_offset=first_offset,
                last_offset=last_offset,
                delivery_state=state,
                reason=reason,
            )
        )

    # Storing
    # ----------------------------------------------------------------------------------------------

    def write(
        self, batches: Sequence[StateBatch], changes: Sequence[ShareStateChange] = ()
    ) -> StateWrite:
        """Return what the persister has to store, with the start offset of now."""
        return StateWrite(
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=self.start_offset,
            delivery_complete_count=self.delivery_complete_count,
            batches=tuple(batches),
            changes=tuple(changes),
        )

    def on_written(self, write: StateWrite, error: ErrorCode, now_ms: int) -> bool:
        """The persister has answered: confirm the changes, or take them back. Returns whether
        waiting fetches may find something now.
        """
        is_stored = error is ErrorCode.NONE
        if is_stored:
            self._emit_stored(write)
        if not self.is_active:
            return False
        if not write.changes:  # locks that ended, which nothing takes back
            return self.move_start_offset()
        for change in write.changes:
            self._end_change(change, is_stored=is_stored, now_ms=now_ms)
        return is_stored and self.move_start_offset()

    def take_back(self, changes: Sequence[ShareStateChange], now_ms: int) -> None:
        """Undo changes of a request that is refused: nothing was stored."""
        for change in changes:
            self._end_change(change, is_stored=False, now_ms=now_ms)

    def _end_change(self, change: ShareStateChange, *, is_stored: bool, now_ms: int) -> None:
        state, stored = change.state, change.stored
        had_lock = state.lock_deadline_ms is not None
        state.end_change(is_stored=is_stored, now_ms=now_ms)
        if state.state is RecordState.AVAILABLE:
            self.may_have_available = True
        first, last = stored.first_offset, stored.last_offset
        if had_lock and state.state is not RecordState.ACQUIRED:
            reason = "stored" if is_stored else "expired"
            self.emit_lock_ended(first, last, state.state, reason)
        if (
            not is_stored
            and RecordState(stored.delivery_state).is_terminal
            and not state.state.is_terminal
        ):
            self.delivery_complete_count -= self.counted(first, last)

    def _emit_stored(self, write: StateWrite) -> None:
        for stored in write.batches:
            self._emit(
                ShareStateStored(
                    **self.names,
                    state_epoch=write.state_epoch,
                    first_offset=stored.first_offset,
                    last_offset=stored.last_offset,
                    delivery_state=stored.delivery_state,
                    delivery_count=stored.delivery_count,
                    start_offset=write.start_offset,
                )
            )
