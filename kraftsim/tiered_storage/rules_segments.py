"""Remote segments: their states, the catalogue of a partition, the records of
`__remote_log_metadata`, and the settings of a topic.

Source: KIP-405, org.apache.kafka.server.log.remote.storage.{RemoteLogSegmentMetadata,
RemoteLogSegmentState}, org.apache.kafka.server.log.remote.metadata.storage.*.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from struct import Struct
from typing import Final

from kraftsim.metadata.rules_config_definitions import AS_THE_WHOLE, is_true
from kraftsim.partitions.rules_log import RetentionRules
from protocol.remote_log.records import (
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemoteLogSegmentState,
    SegmentLeaderEpochEntry,
    TopicIdPartitionEntry,
    build_record,
    parse_record,
)
from protocol.storage.text_files import EpochStart

SegmentState = RemoteLogSegmentState

NEXT_STATES: Final[Mapping[SegmentState, tuple[SegmentState, ...]]] = {
    SegmentState.COPY_SEGMENT_STARTED: (
        SegmentState.COPY_SEGMENT_FINISHED,
        SegmentState.DELETE_SEGMENT_STARTED,
    ),
    SegmentState.COPY_SEGMENT_FINISHED: (SegmentState.DELETE_SEGMENT_STARTED,),
    SegmentState.DELETE_SEGMENT_STARTED: (SegmentState.DELETE_SEGMENT_FINISHED,),
    SegmentState.DELETE_SEGMENT_FINISHED: (),
}
"""The valid next states of each state, besides itself."""


# --------------------------------------------------------------------------------------------------
# One segment: its offsets, its leader epochs, and the state of its copy


@dataclass(frozen=True, slots=True, order=True)
class TopicIdPartition:
    """A partition of a topic id."""

    topic_id: bytes
    partition: int
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSegment:
    """Both ends of the offset range are inclusive.

    `leader_epochs`: the epochs of its records, with the first offset of each.
    """

    segment_id: bytes
    owner: TopicIdPartition
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    size_bytes: int
    leader_epochs: tuple[EpochStart, ...]
    state: SegmentState = SegmentState.COPY_SEGMENT_STARTED
    custom_metadata: bytes | None = None
    is_transaction_index_empty: bool = False

    def advanced(self, update: "SegmentUpdate") -> "RemoteSegment":
        """Return the segment after an update."""
        kept = self.custom_metadata if update.custom_metadata is None else update.custom_metadata
        return replace(
            self,
            state=update.state,
            custom_metadata=kept,
            broker_id=update.broker_id,
            event_timestamp_ms=update.event_timestamp_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentUpdate:
    """The copy is complete, or the segment is being deleted, or is deleted."""

    segment_id: bytes
    owner: TopicIdPartition
    broker_id: int
    event_timestamp_ms: int
    state: SegmentState
    custom_metadata: bytes | None = None


def may_follow(former: SegmentState | None, state: SegmentState) -> bool:
    """Return whether a transition is valid; None: the segment is unknown."""
    return (
        state is SegmentState.COPY_SEGMENT_STARTED
        if former is None
        else state is former or state in NEXT_STATES[former]
    )


# --------------------------------------------------------------------------------------------------
# The segments of one partition, by their leader epochs
#
# Segments of several leaders may overlap. A reader looks up an offset *and* the epoch that its own
# log has for it, so that truncated records are never found.
# Source: RemoteLogMetadataCache, RemoteLogLeaderEpochState.


class _Epoch:
    """The complete segments with records of one leader epoch, by the first offset of its records in
    them.
    """

    __slots__ = ("finished", "highest_offset", "starts", "unreferenced")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.finished: list[bytes] = []
        self.unreferenced: dict[bytes, None] = {}
        """Segments of this epoch that cannot be read: incomplete, replaced by a longer copy, or
        being deleted.
        """
        self.highest_offset = -1

    def add(
        self, start_offset: int, end_offset: int, segment_id: bytes, ends: dict[bytes, int]
    ) -> None:
        """Add a complete segment, unless a longer one covers it; segments that it covers are not
        readable any more.
        """
        self.unreferenced.pop(segment_id, None)
        self.highest_offset = max(self.highest_offset, end_offset)
        at = bisect_right(self.starts, start_offset)
        if at and ends[self.finished[at - 1]] >= end_offset and self.finished[at - 1] != segment_id:
            self.unreferenced[segment_id] = None
            return
        first = at - 1 if at and self.starts[at - 1] == start_offset else at
        last = first
        while last < len(self.starts) and ends[self.finished[last]] <= end_offset:
            self.unreferenced[self.finished[last]] = None
            last += 1
        self.starts[first:last] = [start_offset]
        self.finished[first:last] = [segment_id]
        self.unreferenced.pop(segment_id, None)

    def drop(self, segment_id: bytes) -> None:
        """Make a segment unreadable."""
        if segment_id in self.finished:
            at = self.finished.index(segment_id)
            del self.starts[at], self.finished[at]
        self.unreferenced[segment_id] = None

    def forget(self, segment_id: bytes) -> None:
        """Remove a segment."""
        self.unreferenced.pop(segment_id, None)


class SegmentCatalogue:
    """The segments of one partition.

    `apply_*` apply the records in order; an invalid transition is ignored.
    """

    def __init__(self) -> None:
        self._segments: dict[bytes, RemoteSegment] = {}
        self._epochs: dict[int, _Epoch] = {}

    @property
    def segments(self) -> tuple[RemoteSegment, ...]:
        """All segments that are not deleted, by first offset."""
        return tuple(
            sorted(
                self._segments.values(),
                key=lambda each: (each.start_offset, each.event_timestamp_ms, each.segment_id),
            )
        )

    def find(self, segment_id: bytes) -> RemoteSegment | None:
        """Return a segment by its id."""
        return self._segments.get(segment_id)

    def apply_started(self, segment: RemoteSegment) -> bool:
        """Apply a started copy; return whether it changed anything.

        A finished one is accepted, too: metadata snapshots have them.
        """
        if segment.segment_id in self._segments:
            return False
        self._segments[segment.segment_id] = segment
        for each in segment.leader_epochs:
            self._epoch(each.leader_epoch).unreferenced[segment.segment_id] = None
        if segment.state is SegmentState.COPY_SEGMENT_FINISHED:
            self._finish(segment)
        return True

    def apply_update(self, update: SegmentUpdate) -> bool:
        """Apply a state change; return whether it is valid and changed anything."""
        known = self._segments.get(update.segment_id)
        if (
            known is None
            or update.state is known.state
            or not may_follow(known.state, update.state)
        ):
            return False
        segment = self._segments[update.segment_id] = known.advanced(update)
        if update.state is SegmentState.COPY_SEGMENT_FINISHED:
            self._finish(segment)
        for each in segment.leader_epochs:
            if update.state is SegmentState.DELETE_SEGMENT_STARTED:
                self._epoch(each.leader_epoch).drop(update.segment_id)
            elif update.state is SegmentState.DELETE_SEGMENT_FINISHED:
                self._epoch(each.leader_epoch).forget(update.segment_id)
        if update.state is SegmentState.DELETE_SEGMENT_FINISHED:
            del self._segments[update.segment_id]
        return True

    def holding(self, leader_epoch: int, offset: int) -> RemoteSegment | None:
        """Return the complete segment with an offset of an epoch; None if none is readable."""
        epoch = self._epochs.get(leader_epoch)
        at = 0 if epoch is None else bisect_right(epoch.starts, offset)
        if epoch is None or not at:
            return None
        segment = self._segments[epoch.finished[at - 1]]
        return segment if offset <= end_of_epoch(segment, leader_epoch) else None

    def highest_offset(self, leader_epoch: int) -> int | None:
        """Return the highest offset of an epoch in complete segments; None if there is none."""
        epoch = self._epochs.get(leader_epoch)
        return None if epoch is None or epoch.highest_offset < 0 else epoch.highest_offset

    def of_epoch(self, leader_epoch: int) -> Iterator[RemoteSegment]:
        """Yield all segments with records of an epoch, in any state, by first offset."""
        epoch = self._epochs.get(leader_epoch)
        known = () if epoch is None else (*epoch.finished, *epoch.unreferenced)
        yield from sorted(
            (self._segments[each] for each in known),
            key=lambda each: (each.start_offset, each.segment_id),
        )

    @property
    def leader_epochs(self) -> tuple[int, ...]:
        """The known epochs, ascending."""
        return tuple(
            sorted(
                epoch
                for epoch, known in self._epochs.items()
                if known.finished or known.unreferenced
            )
        )

    def _finish(self, segment: RemoteSegment) -> None:
        for each in segment.leader_epochs:
            ends = {
                known: end_of_epoch(self._segments[known], each.leader_epoch)
                for known in (*self._epoch(each.leader_epoch).finished, segment.segment_id)
            }
            self._epoch(each.leader_epoch).add(
                each.start_offset,
                end_of_epoch(segment, each.leader_epoch),
                segment.segment_id,
                ends,
            )

    def _epoch(self, leader_epoch: int) -> _Epoch:
        return self._epochs.setdefault(leader_epoch, _Epoch())


def end_of_epoch(segment: RemoteSegment, leader_epoch: int) -> int:
    """Return the last offset of an epoch in a segment."""
    for former, latter in pairwise(segment.leader_epochs):
        if former.leader_epoch == leader_epoch:
            return latter.start_offset - 1
    return segment.end_offset


def is_within(segment: RemoteSegment, log_end_offset: int, epochs: Sequence[EpochStart]) -> bool:
    """Return whether a segment belongs to the log with these epochs: its own are consecutive there,
    and end no later.

    Epochs that ended before the log start offset may be missing there.
    Source: RemoteLogManager.isRemoteSegmentWithinLeaderEpochs.
    """
    ours = segment.leader_epochs
    if (
        not epochs
        or segment.end_offset >= log_end_offset
        or ours[-1].leader_epoch < epochs[0].leader_epoch
    ):
        return False
    starts = {each.leader_epoch: each.start_offset for each in epochs}
    following = {former.leader_epoch: latter for former, latter in pairwise(epochs)}
    for index, each in enumerate(ours):
        if each.leader_epoch < epochs[0].leader_epoch:
            continue
        if each.leader_epoch not in starts:
            return False
        if (
            index == 0
            and each.start_offset < starts[each.leader_epoch]
            and each.leader_epoch != epochs[0].leader_epoch
        ):
            return False
        after = following.get(each.leader_epoch)
        if index + 1 < len(ours) and after != ours[index + 1]:
            return False
        if (
            index + 1 == len(ours)
            and after is not None
            and segment.end_offset >= after.start_offset
        ):
            return False
    return True


# --------------------------------------------------------------------------------------------------
# The records of `__remote_log_metadata`: partitioning, serialization and parsing
#
# Source: RemoteLogMetadataTopicPartitioner, serialization.*.

MURMUR_SEED: Final = 0x9747B28C
MURMUR_FACTOR: Final = 0x5BD1E995
UINT32: Final = 0xFFFFFFFF
_HALVES: Final = Struct(">qq")
RECORD_VERSION: Final = 0


def metadata_partition(owner: TopicIdPartition, partition_count: int) -> int:
    """Return the partition of the metadata topic for a partition."""
    most, least = _HALVES.unpack(owner.topic_id)
    hashed = 1
    for part in (_int64_hash(least), _int64_hash(most), owner.partition):
        hashed = (31 * hashed + part) & UINT32
    return (murmur2(hashed.to_bytes(4, "big")) & 0x7FFFFFFF) % partition_count


def segment_record(segment: RemoteSegment) -> bytes:
    """Return the record of a started copy."""
    owner = segment.owner
    record = RemoteLogSegmentMetadataRecord(
        remote_log_segment_id=RemoteLogSegmentIdEntry(
            topic_id_partition=TopicIdPartitionEntry(
                name=owner.topic, id=owner.topic_id, partition=owner.partition
            ),
            id=segment.segment_id,
        ),
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        broker_id=segment.broker_id,
        max_timestamp_ms=segment.max_timestamp_ms,
        event_timestamp_ms=segment.event_timestamp_ms,
        segment_leader_epochs=[
            SegmentLeaderEpochEntry(leader_epoch=each.leader_epoch, offset=each.start_offset)
            for each in segment.leader_epochs
        ],
        segment_size_in_bytes=segment.size_bytes,
        custom_metadata=segment.custom_metadata,
        remote_log_segment_state=segment.state,
        txn_index_empty=segment.is_transaction_index_empty,
    )
    return bytes(build_record(record, RECORD_VERSION))


def update_record(update: SegmentUpdate) -> bytes:
    """Return the record of a segment's state change."""
    owner = update.owner
    record = RemoteLogSegmentMetadataUpdateRecord(
        remote_log_segment_id=RemoteLogSegmentIdEntry(
            topic_id_partition=TopicIdPartitionEntry(
                name=owner.topic, id=owner.topic_id, partition=owner.partition
            ),
            id=update.segment_id,
        ),
        broker_id=update.broker_id,
        event_timestamp_ms=update.event_timestamp_ms,
        custom_metadata=update.custom_metadata,
        remote_log_segment_state=update.state,
    )
    return bytes(build_record(record, RECORD_VERSION))


def parse_metadata(value: bytes) -> RemoteSegment | SegmentUpdate | None:
    """Parse a record; None for one about a whole partition. Raises MalformedMessage."""
    record = parse_record(value)
    if isinstance(record, RemoteLogSegmentMetadataRecord):
        entry = record.remote_log_segment_id
        return RemoteSegment(
            segment_id=entry.id,
            owner=TopicIdPartition(
                entry.topic_id_partition.id,
                entry.topic_id_partition.partition,
                entry.topic_id_partition.name,
            ),
            start_offset=record.start_offset,
            end_offset=record.end_offset,
            max_timestamp_ms=record.max_timestamp_ms,
            broker_id=record.broker_id,
            event_timestamp_ms=record.event_timestamp_ms,
            size_bytes=record.segment_size_in_bytes,
            leader_epochs=tuple(
                sorted(
                    EpochStart(each.leader_epoch, each.offset)
                    for each in record.segment_leader_epochs
                )
            ),
            state=SegmentState(record.remote_log_segment_state),
            custom_metadata=record.custom_metadata,
            is_transaction_index_empty=record.txn_index_empty,
        )
    if isinstance(record, RemoteLogSegmentMetadataUpdateRecord):
        named = record.remote_log_segment_id
        return SegmentUpdate(
            segment_id=named.id,
            owner=TopicIdPartition(
                named.topic_id_partition.id,
                named.topic_id_partition.partition,
                named.topic_id_partition.name,
            ),
            broker_id=record.broker_id,
            event_timestamp_ms=record.event_timestamp_ms,
            state=SegmentState(record.remote_log_segment_state),
            custom_metadata=record.custom_metadata,
        )
    return None


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash that Kafka's producers partition keys by.

    Source: org.apache.kafka.common.utils.Utils.murmur2.
    """
    hashed = MURMUR_SEED ^ len(data)
    whole = len(data) - len(data) % 4
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * MURMUR_FACTOR & UINT32
        part = (part ^ part >> 24) * MURMUR_FACTOR & UINT32
        hashed = (hashed * MURMUR_FACTOR & UINT32) ^ part
    if whole < len(data):
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * MURMUR_FACTOR & UINT32
    hashed = (hashed ^ hashed >> 13) * MURMUR_FACTOR & UINT32
    return hashed ^ hashed >> 15


def _int64_hash(value: int) -> int:
    """Return java.lang.Long.hashCode."""
    unsigned = value & 0xFFFFFFFFFFFFFFFF
    return (unsigned ^ unsigned >> 32) & UINT32


# --------------------------------------------------------------------------------------------------
# The settings of a topic
#
# Source: LogConfig (remoteStorageEnable, localRetentionMs), KIP-405, KIP-950.


@dataclass(frozen=True, slots=True, kw_only=True)
class TieringRules:
    """`is_tiered`: closed segments are copied and the oldest local ones deleted.

    `copies`: copying is enabled. -2: the retention of the whole log.
    """

    is_tiered: bool = False
    copies: bool = True
    local_retention_ms: int = AS_THE_WHOLE
    local_retention_bytes: int = AS_THE_WHOLE

    def local_retention(self, whole: RetentionRules) -> RetentionRules:
        """Return the local retention, derived from the retention of the whole log."""
        return replace(
            whole,
            retention_ms=whole.retention_ms
            if self.local_retention_ms == AS_THE_WHOLE
            else self.local_retention_ms,
            retention_bytes=whole.retention_bytes
            if self.local_retention_bytes == AS_THE_WHOLE
            else self.local_retention_bytes,
        )


NOT_TIERED = TieringRules()


def tiering_rules(configs: Mapping[str, str], *, is_enabled: bool) -> TieringRules:
    """Return the rules for a topic.

    `configs` are the effective ones; `is_enabled`: the broker has remote storage.
    """
    if not is_enabled or not is_true(configs, "remote.storage.enable"):
        return NOT_TIERED
    return TieringRules(
        is_tiered=True,
        copies=not is_true(configs, "remote.log.copy.disable"),
        local_retention_ms=int(configs["local.retention.ms"]),
        local_retention_bytes=int(configs["local.retention.bytes"]),
    )
