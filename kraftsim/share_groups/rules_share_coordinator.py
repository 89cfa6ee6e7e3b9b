"""The share-partitions of one partition of `__share_group_state`: what a request does to them, as
records, and what the records mean.

A state is written as a ShareSnapshot when it begins, then as ShareUpdates with the changes alone;
after `updates_per_snapshot` of them the next change is a snapshot again. A share-partition that is
not written for a while gets a snapshot, too, so that its records do not hold back the deletion of
those in front of them.

Four releases differ, each a class here. 4.2 stores how many records are complete (KIP-1226), and
what a write says about epochs changes nothing any more; 4.3 lets a reader without a leader epoch
in; 4.4 refuses negative epochs, and never moves a start offset back.
Source: KIP-932; org.apache.kafka.coordinator.share.{ShareCoordinatorShard, ShareGroupOffset,
ShareCoordinatorOffsetsManager} of 4.1.2, 4.2.2, 4.3.1 and 4.4.0.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from kraftsim.core.decision import Refusal
from kraftsim.groups.rules_assignors import java_order, timeline_order, uuid_hash
from kraftsim.groups.rules_timing import java_hash
from kraftsim.share_groups.rules_share_batches import (
    Batches,
    ImpossibleBatch,
    combine_in_one_sweep,
    combine_in_pairs,
)
from kraftsim.share_groups.rules_share_states import (
    DEFAULT_STATE_EPOCH,
    NO_DELIVERY_COMPLETE_COUNT,
    UNINITIALIZED_EPOCH,
    UNINITIALIZED_START_OFFSET,
    LeaderWrite,
    SharePartitionKey,
    StateBatch,
)
from protocol.coordinator import share_states
from protocol.coordinator.registry import CoordinatorTopic, build_record, parse_record
from protocol.coordinator.share_states import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from protocol.errors import UNEXPECTED, ErrorCode
from protocol.malformed import MalformedMessage
from protocol.records.batches import RecordBatch

NEW_LEADER_EPOCH: Final = 0
NO_TIME_MS: Final = 0
FIRST_SNAPSHOT: Final = 0
INITIALIZED, WRITTEN, READ, COLD = "initialized", "written", "read", "cold"
"""Why a record was written: events name it."""
Result = TypeVar("Result")


class ShareState(Struct, frozen=True, kw_only=True):
    """The state of a share-partition.

    Times are those of the wall clock: `created_ms` of the last snapshot that a request caused,
    `written_ms` of the last snapshot.
    """

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Batches = ()
    created_ms: int = NO_TIME_MS
    written_ms: int = NO_TIME_MS


class ShareStateRecord(NamedTuple):
    """A record of `__share_group_state`; no value is a tombstone."""

    key: ShareSnapshotKey | ShareUpdateKey
    value: ShareSnapshotValue | ShareUpdateValue | None

    @property
    def share_partition(self) -> SharePartitionKey:
        """The share-partition that it is about."""
        return SharePartitionKey(self.key.group_id, self.key.topic_id, self.key.partition)

    def encoded(self) -> tuple[bytes, bytes | None]:
        """Return key and value of the log record."""
        return build_record(self.key, self.value)


@dataclass(frozen=True, slots=True)
class ShareDecision(Generic[Result]):
    """`result` is valid once the records are in the log, in one batch, and all that was appended
    before them is replicated. `cause` is for events.
    """

    records: tuple[ShareStateRecord, ...]
    result: Result
    cause: str = ""


class ShareStateLimits(NamedTuple):
    """Configuration: share.coordinator.snapshot.update.records.per.snapshot and
    share.coordinator.cold.partition.snapshot.interval.ms.
    """

    updates_per_snapshot: int
    cold_interval_ms: int


PartitionCount = Callable[[bytes], int | None]
"""The number of partitions of a topic by its id; None if it does not exist."""
FENCED_LEADER: Final = Refusal(
    ErrorCode.FENCED_LEADER_EPOCH,
    "The leader epoch in the request is older than the epoch on the broker.",
)
FENCED_STATE: Final = Refusal(
    ErrorCode.FENCED_STATE_EPOCH,
    "The coordinator rejected the request because the state epoch did not match.",
)
FENCED_STATE_BEFORE_44: Final = Refusal(
    ErrorCode.FENCED_STATE_EPOCH,
    "The share coordinator rejected the request because the share-group state epoch did not match.",
)
UNKNOWN_PARTITION: Final = Refusal(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
)
NEGATIVE_PARTITION: Final = Refusal(
    ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number."
)
NEGATIVE_LEADER_EPOCH: Final = Refusal(
    ErrorCode.INVALID_REQUEST, "The leader epoch cannot be a negative number."
)
NEGATIVE_STATE_EPOCH: Final = Refusal(
    ErrorCode.INVALID_REQUEST, "The state epoch cannot be a negative number."
)
UNINITIALIZED_WRITE: Final = Refusal(
    ErrorCode.INVALID_REQUEST,
    "Write operation on uninitialized share partition not allowed.",
)
UNINITIALIZED_READ: Final = Refusal(
    ErrorCode.INVALID_REQUEST, "Read operation on uninitialized share partition not allowed."
)
NOT_COMBINABLE: Final = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, UNEXPECTED)
"""For batches that Kafka's combiner fails on."""


class ShareShard:
    """The states of Apache Kafka 4.4, and what all releases have in common."""

    combine = staticmethod(combine_in_one_sweep)
    fenced_state: Refusal = FENCED_STATE
    first_update_counts: bool = True
    """Whether the first update behind a snapshot counts as one of `updates_per_snapshot`."""
    counts_complete: bool = True
    """Whether delivery_complete_count is stored (KIP-1226)."""

    def __init__(self, limits: ShareStateLimits, partition_count: PartitionCount) -> None:
        self.states: dict[SharePartitionKey, ShareState] = {}
        self.record_offsets: dict[SharePartitionKey, int] = {}
        """The offset of each state's last record."""
        self._limits = limits
        self._partition_count = partition_count
        self._leader_epochs: dict[SharePartitionKey, int] = {}
        self._state_epochs: dict[SharePartitionKey, int] = {}
        self._updates: dict[SharePartitionKey, int] = {}
        self._snapshot_offsets: OrderedDict[SharePartitionKey, int] = OrderedDict()
        """The offset of each last snapshot, ascending."""
        self._redundant_before: int | None = None

    # Requests
    # ----------------------------------------------------------------------------------------------

    def decide_initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, now_ms: int
    ) -> ShareDecision[None] | Refusal:
        """Begin a state again. Refuses an earlier state epoch than the last one."""
        if key.partition < 0:
            return NEGATIVE_PARTITION
        if (refused := self._refuse_state_epoch(key, state_epoch)) is not None:
            return refused
        if not self._exists(key):
            return UNKNOWN_PARTITION
        former = self.states.get(key)
        is_known = start_offset != UNINITIALIZED_START_OFFSET and self.counts_complete
        state = ShareState(
            snapshot_epoch=FIRST_SNAPSHOT if former is None else former.snapshot_epoch + 1,
            state_epoch=state_epoch,
            leader_epoch=NEW_LEADER_EPOCH,
            start_offset=start_offset,
            delivery_complete_count=0 if is_known else NO_DELIVERY_COMPLETE_COUNT,
            created_ms=now_ms,
            written_ms=now_ms,
        )
        return ShareDecision((snapshot_record(key, state),), None, INITIALIZED)

    def decide_write(
        self, key: SharePartitionKey, change: LeaderWrite, now_ms: int
    ) -> ShareDecision[None] | Refusal:
        """Store a change. Refuses a state that has not begun, and earlier epochs than the last
        ones.
        """
        if key.partition < 0:
            return NEGATIVE_PARTITION
        if (refused := self._refuse_negative(change)) is not None:
            return refused
        if key not in self.states:
            return UNINITIALIZED_WRITE
        if self._is_fenced(self._leader_epochs[key], change.leader_epoch):
            return FENCED_LEADER
        if self._is_fenced(self._state_epochs.get(key, DEFAULT_STATE_EPOCH), change.state_epoch):
            return self.fenced_state
        if not self._exists(key):
            return UNKNOWN_PARTITION
        try:
            record = self._changed(key, change, now_ms, sets_leader=False)
        except ImpossibleBatch:
            return NOT_COMBINABLE
        return ShareDecision((record,), None, WRITTEN)

    def decide_read(
        self, key: SharePartitionKey, leader_epoch: int, now_ms: int
    ) -> ShareDecision[ShareState] | Refusal:
        """Return a state, and fence leaders of earlier epochs. Refuses a state that has not begun,
        and a leader of an earlier epoch than the last one.
        """
        if key.partition < 0:
            return NEGATIVE_PARTITION
        if (refused := self._refuse_reader(leader_epoch)) is not None:
            return refused
        state = self.states.get(key)
        if state is None:
            return UNINITIALIZED_READ
        if self._is_reader_fenced(self._leader_epochs[key], leader_epoch):
            return FENCED_LEADER
        if not self._exists(key):
            return UNKNOWN_PARTITION
        if leader_epoch in (self._leader_epochs[key], UNINITIALIZED_EPOCH):
            return ShareDecision((), state)
        change = LeaderWrite(
            state_epoch=state.state_epoch,
            leader_epoch=leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
        )
        try:
            record = self._changed(key, change, now_ms, sets_leader=True)
        except ImpossibleBatch:
            return NOT_COMBINABLE
        return ShareDecision((record,), state, READ)

    def decide_summary(self, key: SharePartitionKey) -> ShareDecision[ShareState | None] | Refusal:
        """Return a state, or None if it has not begun."""
        if key.partition < 0:
            return NEGATIVE_PARTITION
        if not self._exists(key):
            return UNKNOWN_PARTITION
        return ShareDecision((), self.states.get(key))

    def decide_delete(self, key: SharePartitionKey) -> ShareDecision[None] | Refusal:
        """Delete a state, if there is one."""
        if key.partition < 0:
            return NEGATIVE_PARTITION
        if not self._exists(key):
            return UNKNOWN_PARTITION
        return ShareDecision((tombstone(key),) if key in self.states else (), None)

    def decide_topic_deletion(self, topic_ids: Iterable[bytes]) -> ShareDecision[None]:
        """Delete the states of topics that are deleted."""
        deleted = frozenset(topic_ids)
        found = [key for key in self._in_order() if key.topic_id in deleted]
        return ShareDecision(tuple(map(tombstone, java_order(found, key_hash))), None)

    def decide_cold_snapshots(self, now_ms: int) -> ShareDecision[None]:
        """Write a snapshot of each share-partition whose last one is older than the interval.

        Nothing is written if every state's last snapshot is of this kind.
        """
        if all(state.created_ms != state.written_ms for state in self.states.values()):
            return ShareDecision((), None)
        records = []
        for key in self._in_order():
            state = self.states[key]
            if now_ms - state.written_ms >= self._limits.cold_interval_ms:
                again = replace(state, snapshot_epoch=state.snapshot_epoch + 1, written_ms=now_ms)
                records.append(snapshot_record(key, again))
        return ShareDecision(tuple(records), None, COLD)

    @property
    def redundant_before(self) -> int | None:
        """The offset in front of which nothing is needed; None if everything is."""
        return self._redundant_before or None

    # Replay
    # ----------------------------------------------------------------------------------------------

    def replay(self, batch: RecordBatch) -> None:
        """Replay a batch of the log. Raises MalformedMessage."""
        if batch.is_control:
            return
        for record in batch.records():
            if record.key is None:
                continue
            parsed = parse_record(CoordinatorTopic.SHARE_GROUP_STATE, record.key, record.value)
            match parsed:
                case (ShareSnapshotKey() as key, (ShareSnapshotValue() | None) as value):
                    self.replay_record(ShareStateRecord(key, value), record.offset)
                case (ShareUpdateKey() as key, ShareUpdateValue() as value):
                    self.replay_record(ShareStateRecord(key, value), record.offset)

    def replay_record(self, record: ShareStateRecord, offset: int) -> None:
        """Replay a record at its offset. Raises MalformedMessage if its batches cannot be combined
        with those before it.
        """
        key, value = record.share_partition, record.value
        self.record_offsets[key] = offset
        if isinstance(value, ShareUpdateValue):
            self._replay_update(key, value)
            return
        if value is None:
            for known in (
                self.states,
                self.record_offsets,
                self._leader_epochs,
                self._state_epochs,
                self._updates,
            ):
                known.pop(key, None)
        else:
            self._learn_leader(key, value.leader_epoch)
            last = self._state_epochs.get(key, value.state_epoch)
            self._state_epochs[key] = max(last, value.state_epoch)
            self.states[key] = _state_of(value)
            if self._updates.get(key, -1) >= self._limits.updates_per_snapshot:
                self._updates[key] = 0
        self._snapshot_offsets.pop(key, None)
        self._snapshot_offsets[key] = offset
        self._redundant_before = next(iter(self._snapshot_offsets.values()))
        if value is None:
            del self._snapshot_offsets[key]

    def _replay_update(self, key: SharePartitionKey, value: ShareUpdateValue) -> None:
        self._learn_leader(key, value.leader_epoch)
        state = self.states.get(key)
        added = _batches_of(value.state_batches)
        if state is None:
            self.states[key] = ShareState(
                snapshot_epoch=value.snapshot_epoch,
                state_epoch=DEFAULT_STATE_EPOCH,
                leader_epoch=value.leader_epoch,
                start_offset=value.start_offset,
                delivery_complete_count=value.delivery_complete_count,
                batches=added,
            )
        else:
            start_offset = _known_or(value.start_offset, state.start_offset)
            try:
                batches = self.combine(state.batches, added, start_offset)
            except ImpossibleBatch as why:
                raise MalformedMessage(None, None, "state_batches", f"batch {why}") from why
            self.states[key] = replace(
                state,
                leader_epoch=_known_or(value.leader_epoch, state.leader_epoch),
                start_offset=start_offset,
                delivery_complete_count=value.delivery_complete_count,
                batches=batches,
            )
        known = self._updates.get(key)
        self._updates[key] = int(self.first_update_counts) if known is None else known + 1

    def _learn_leader(self, key: SharePartitionKey, leader_epoch: int) -> None:
        last = self._leader_epochs.get(key, leader_epoch)
        self._leader_epochs[key] = max(last, leader_epoch)

    # What releases do differently
    # ----------------------------------------------------------------------------------------------

    def _refuse_negative(self, change: LeaderWrite) -> Refusal | None:
        if change.leader_epoch < 0:
            return NEGATIVE_LEADER_EPOCH
        return NEGATIVE_STATE_EPOCH if change.state_epoch < 0 else None

    def _refuse_reader(self, leader_epoch: int) -> Refusal | None:
        return NEGATIVE_LEADER_EPOCH if leader_epoch < 0 else None

    def _refuse_state_epoch(self, key: SharePartitionKey, state_epoch: int) -> Refusal | None:
        if state_epoch < 0:
            return NEGATIVE_STATE_EPOCH
        return self.fenced_state if self._state_epochs.get(key, state_epoch) > state_epoch else None

    def _is_fenced(self, last_epoch: int, epoch: int) -> bool:
        return last_epoch > epoch

    def _is_reader_fenced(self, last_epoch: int, epoch: int) -> bool:
        return last_epoch > epoch

    def _changed(
        self, key: SharePartitionKey, change: LeaderWrite, now_ms: int, *, sets_leader: bool
    ) -> ShareStateRecord:
        """Return the record of a change: an update, or a snapshot after enough of them."""
        state = self.states[key]
        start_offset = max(change.start_offset, state.start_offset)
        complete = change.delivery_complete_count
        if change.start_offset == state.start_offset:
            complete = max(complete, state.delivery_complete_count)
        elif change.start_offset < state.start_offset:
            complete = state.delivery_complete_count
        changed = replace(
            state,
            leader_epoch=change.leader_epoch if sets_leader else state.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=complete,
        )
        return self._record(key, changed, change.batches, start_offset, now_ms)

    # Shared parts
    # ----------------------------------------------------------------------------------------------

    def _record(
        self,
        key: SharePartitionKey,
        changed: ShareState,
        added: tuple[StateBatch, ...],
        start_offset: int,
        now_ms: int,
        *,
        is_snapshot: bool = False,
    ) -> ShareStateRecord:
        """Return a snapshot of a state with batches added, or an update with these alone.

        That they can be combined is made sure of first: replay cannot refuse.
        """
        combined = self.combine(changed.batches, added, changed.start_offset)
        if is_snapshot or self._updates.get(key, 0) >= self._limits.updates_per_snapshot:
            return snapshot_record(
                key,
                replace(
                    changed,
                    snapshot_epoch=changed.snapshot_epoch + 1,
                    batches=combined,
                    created_ms=now_ms,
                    written_ms=now_ms,
                ),
            )
        value = ShareUpdateValue(
            snapshot_epoch=changed.snapshot_epoch,
            leader_epoch=changed.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=changed.delivery_complete_count,
            state_batches=_rows_of(self.combine((), added, start_offset)),
        )
        return ShareStateRecord(
            ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition),
            value,
        )

    def _exists(self, key: SharePartitionKey) -> bool:
        count = self._partition_count(key.topic_id)
        return count is not None and key.partition < count

    def _in_order(self) -> list[SharePartitionKey]:
        """Return the share-partitions in the order in which Kafka visits them."""
        return timeline_order(self.states, key_hash)


class ShareShardBefore44(ShareShard):
    """Apache Kafka 4.3: an epoch of -1 passes, a start offset may move back, and an update has what
    was written.
    """

    combine = staticmethod(combine_in_pairs)
    fenced_state = FENCED_STATE_BEFORE_44

    def _refuse_negative(self, change: LeaderWrite) -> Refusal | None:
        return None

    def _refuse_reader(self, leader_epoch: int) -> Refusal | None:
        return None

    def _refuse_state_epoch(self, key: SharePartitionKey, state_epoch: int) -> Refusal | None:
        last = self._state_epochs.get(key, state_epoch)
        return self.fenced_state if self._is_fenced(last, state_epoch) else None

    def _is_fenced(self, last_epoch: int, epoch: int) -> bool:
        return epoch != UNINITIALIZED_EPOCH and last_epoch > epoch

    def _is_reader_fenced(self, last_epoch: int, epoch: int) -> bool:
        return self._is_fenced(last_epoch, epoch)

    def _changed(
        self, key: SharePartitionKey, change: LeaderWrite, now_ms: int, *, sets_leader: bool
    ) -> ShareStateRecord:
        state = self.states[key]
        changed = replace(
            state,
            leader_epoch=_known_or(change.leader_epoch, state.leader_epoch)
            if sets_leader
            else state.leader_epoch,
            start_offset=_known_or(change.start_offset, state.start_offset),
            delivery_complete_count=change.delivery_complete_count,
        )
        return self._record(key, changed, change.batches, change.start_offset, now_ms)


class ShareShardBefore43(ShareShardBefore44):
    """Apache Kafka 4.2: a reader without a leader epoch is fenced."""

    def _is_reader_fenced(self, last_epoch: int, epoch: int) -> bool:
        return last_epoch > epoch


class ShareShardBefore42(ShareShardBefore43):
    """Apache Kafka 4.1: complete records are not counted; a write sets the leader epoch, and begins
    a snapshot with a later state epoch.
    """

    first_update_counts = False
    counts_complete = False

    def _changed(
        self, key: SharePartitionKey, change: LeaderWrite, now_ms: int, *, sets_leader: bool
    ) -> ShareStateRecord:
        state = self.states[key]
        is_later = change.state_epoch > state.state_epoch
        is_snapshot = is_later or self._updates.get(key, 0) >= self._limits.updates_per_snapshot
        changed = replace(
            state,
            state_epoch=_known_or(change.state_epoch, state.state_epoch),
            leader_epoch=_known_or(change.leader_epoch, state.leader_epoch)
            if is_snapshot
            else change.leader_epoch,
            start_offset=_known_or(change.start_offset, state.start_offset),
        )
        return self._record(
            key, changed, change.batches, change.start_offset, now_ms, is_snapshot=is_later
        )


def snapshot_record(key: SharePartitionKey, state: ShareState) -> ShareStateRecord:
    """Return the ShareSnapshot record of a state."""
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.created_ms,
        write_timestamp=state.written_ms,
        state_batches=_rows_of(state.batches),
    )
    return ShareStateRecord(_snapshot_key(key), value)


def tombstone(key: SharePartitionKey) -> ShareStateRecord:
    """Return the record that deletes a state."""
    return ShareStateRecord(_snapshot_key(key), None)


def key_hash(key: SharePartitionKey) -> int:
    """Return org.apache.kafka.server.share.SharePartitionKey.hashCode, as 32 bits."""
    partition = 31 * (31 + key.partition)
    topic_partition = 31 * (31 + uuid_hash(key.topic_id)) + partition
    return (31 * (31 + java_hash(key.group_id)) + topic_partition) & 0xFFFF_FFFF


def _snapshot_key(key: SharePartitionKey) -> ShareSnapshotKey:
    return ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)


def _known_or(value: int, former: int) -> int:
    """Return a value, or the former one if it is -1."""
    return former if value == UNINITIALIZED_START_OFFSET else value


def _state_of(value: ShareSnapshotValue) -> ShareState:
    return ShareState(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        batches=_batches_of(value.state_batches),
        created_ms=value.create_timestamp,
        written_ms=value.write_timestamp,
    )


def _batches_of(rows: Sequence[share_states.StateBatch]) -> Batches:
    return tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in rows
    )


def _rows_of(batches: Batches) -> list[share_states.StateBatch]:
    return [
        share_states.StateBatch(
            first_offset=each.first_offset,
            last_offset=each.last_offset,
            delivery_state=each.delivery_state,
            delivery_count=each.delivery_count,
        )
        for each in batches
    ]
