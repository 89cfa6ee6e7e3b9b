"""A follower's side of replication: its requests to the leader and the handling of the responses;
besides, the results of reads and the events of a replica, which leader and follower share.

Source: KIP-101, KIP-279, KIP-595, AbstractFetcherThread.{processFetchRequest,
getOffsetTruncationState, fetchOffsetAndTruncate}, ReplicaFetcherThread.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

from kraftsim.core.decision import Refusal
from kraftsim.events.event import Event
from kraftsim.partitions.events import (
    BatchAppended,
    BatchReplicated,
    DuplicateAnswered,
    IsrChangeAsked,
    IsrChanged,
    LeaderElected,
    LeaderFollowed,
    LeadershipLost,
    LogStartMoved,
    PartitionHighWatermarkMoved,
    PartitionTruncated,
    ProduceRefused,
    ProducerSnapshotTaken,
    ProducerStateExpired,
)
from kraftsim.partitions.events_transactions import (
    LastStableOffsetMoved,
    MarkerAppended,
    MarkerRefused,
)
from kraftsim.partitions.rules_append import AppendDecision, EndMarker
from kraftsim.partitions.rules_leader import IsrProposal, LeaderState
from kraftsim.partitions.rules_log import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpochs
from kraftsim.producer_state.rules_entries import Duplicate
from kraftsim.tiered_storage.events import LocalLogStartMoved
from protocol.errors import ErrorCode
from protocol.records.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, RecordBatch

# --------------------------------------------------------------------------------------------------
# The events of a replica: one method per event


class ReplicaEvents:
    """Emits the events of one partition."""

    __slots__ = ("_emit", "partition", "topic")

    def __init__(self, topic: str, partition: int, emit: Callable[[Event], None]) -> None:
        self.topic = topic
        self.partition = partition
        self._emit = emit

    # Roles
    # ----------------------------------------------------------------------------------------------

    def elected(self, leader_epoch: int, log_end_offset: int) -> None:
        """It is leader."""
        self._emit(
            LeaderElected(
                topic=self.topic,
                partition=self.partition,
                leader_epoch=leader_epoch,
                next_offset=log_end_offset,
            )
        )

    def leadership_lost(self, leader_epoch: int) -> None:
        """It is not leader any more."""
        self._emit(
            LeadershipLost(topic=self.topic, partition=self.partition, leader_epoch=leader_epoch)
        )

    def follows(self, leader_id: int, leader_epoch: int, log_end_offset: int) -> None:
        """It is follower."""
        self._emit(
            LeaderFollowed(
                topic=self.topic,
                partition=self.partition,
                leader_id=leader_id,
                leader_epoch=leader_epoch,
                log_end_offset=log_end_offset,
            )
        )

    def isr_proposed(self, proposal: IsrProposal) -> None:
        """It sends AlterPartition."""
        self._emit(
            IsrChangeAsked(
                topic=self.topic,
                partition=self.partition,
                leader_epoch=proposal.leader_epoch,
                partition_epoch=proposal.partition_epoch,
                isr=",".join(str(each) for each in proposal.isr),
            )
        )

    def in_sync(self, leader_state: LeaderState, leader_epoch: int) -> None:
        """Its ISR changed."""
        self._emit(
            IsrChanged(
                topic=self.topic,
                partition=self.partition,
                leader_epoch=leader_epoch,
                partition_epoch=leader_state.in_sync.partition_epoch,
                isr=",".join(str(each) for each in leader_state.in_sync.agreed),
            )
        )

    # The log
    # ----------------------------------------------------------------------------------------------

    def appended(self, decision: AppendDecision) -> None:
        """It appended a batch as leader."""
        batch = decision.batch
        self._emit(
            BatchAppended(
                topic=self.topic,
                partition=self.partition,
                leader_epoch=decision.leader_epoch,
                first_offset=decision.first_offset,
                last_offset=decision.last_offset,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                base_sequence=batch.base_sequence,
                last_sequence=batch.last_sequence,
                record_count=batch.record_count,
                size_bytes=batch.size_bytes,
                crc=decision.crc,
                is_transactional=batch.is_transactional,
            )
        )

    def replicated(self, batch: RecordBatch) -> None:
        """It appended a batch as follower."""
        self._emit(
            BatchReplicated(
                topic=self.topic,
                partition=self.partition,
                leader_epoch=batch.partition_leader_epoch,
                first_offset=batch.base_offset,
                last_offset=batch.last_offset,
                crc=batch.crc,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                base_sequence=batch.base_sequence,
                is_transactional=batch.is_transactional,
            )
        )

    def truncated(
        self, leader_epoch: int, former_end_offset: int, log_end_offset: int, high_watermark: int
    ) -> None:
        """Its log was truncated."""
        self._emit(
            PartitionTruncated(
                topic=self.topic,
                partition=self.partition,
                leader_epoch=leader_epoch,
                former_end_offset=former_end_offset,
                log_end_offset=log_end_offset,
                high_watermark=high_watermark,
            )
        )

    def local_start_moved(self, local_start_offset: int, log_start_offset: int) -> None:
        """Local segments that are in remote storage were deleted."""
        self._emit(
            LocalLogStartMoved(
                topic=self.topic,
                partition=self.partition,
                local_start_offset=local_start_offset,
                log_start_offset=log_start_offset,
            )
        )

    def log_start_moved(self, log_start_offset: int, reason: str) -> None:
        """Its log start offset advanced."""
        self._emit(
            LogStartMoved(
                topic=self.topic,
                partition=self.partition,
                log_start_offset=log_start_offset,
                reason=reason,
            )
        )

    def high_watermark(self, leader_epoch: int, high_watermark: int, *, is_leader: bool) -> None:
        """Its high watermark moved."""
        self._emit(
            PartitionHighWatermarkMoved(
                topic=self.topic,
                partition=self.partition,
                leader_epoch=leader_epoch,
                high_watermark=high_watermark,
                is_leader=is_leader,
            )
        )

    # Producers
    # ----------------------------------------------------------------------------------------------

    def refused(self, batch: RecordBatch | None, refusal: Refusal) -> None:
        """It refused a batch; None for bytes without a valid batch."""
        self._emit(
            ProduceRefused(
                topic=self.topic,
                partition=self.partition,
                error_code=refusal.error,
                reason=refusal.why,
                producer_id=NO_PRODUCER_ID if batch is None else batch.producer_id,
                producer_epoch=NO_PRODUCER_EPOCH if batch is None else batch.producer_epoch,
                base_sequence=NO_SEQUENCE if batch is None else batch.base_sequence,
            )
        )

    def duplicate(self, batch: RecordBatch, duplicate: Duplicate) -> None:
        """It detected a duplicate batch."""
        self._emit(
            DuplicateAnswered(
                topic=self.topic,
                partition=self.partition,
                first_offset=duplicate.first_offset,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                base_sequence=batch.base_sequence,
                last_sequence=batch.last_sequence,
            )
        )

    def expired(self, producer_id: int) -> None:
        """A producer expired."""
        self._emit(
            ProducerStateExpired(
                topic=self.topic, partition=self.partition, producer_id=producer_id
            )
        )

    def snapshot(self, next_offset: int, last_offset: int) -> None:
        """It wrote a producer state snapshot."""
        self._emit(
            ProducerSnapshotTaken(
                topic=self.topic,
                partition=self.partition,
                next_offset=next_offset,
                last_offset=last_offset,
            )
        )

    # Transactions
    # ----------------------------------------------------------------------------------------------

    def ended(self, marker: EndMarker, offset: int, *, on_leader: bool) -> None:
        """A marker is in its log."""
        self._emit(
            MarkerAppended(
                topic=self.topic,
                partition=self.partition,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                is_commit=marker.is_commit,
                offset=offset,
                on_leader=on_leader,
            )
        )

    def refused_marker(self, marker: EndMarker, refusal: Refusal) -> None:
        """It refused a marker."""
        self._emit(
            MarkerRefused(
                topic=self.topic,
                partition=self.partition,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                is_commit=marker.is_commit,
                error_code=refusal.error,
                reason=refusal.why,
            )
        )

    def stable(self, leader_epoch: int, offset: int, high_watermark: int) -> None:
        """Its last stable offset moved, or a transaction limits it from now on."""
        self._emit(
            LastStableOffsetMoved(
                topic=self.topic,
                partition=self.partition,
                leader_epoch=leader_epoch,
                offset=offset,
                high_watermark=high_watermark,
            )
        )


# --------------------------------------------------------------------------------------------------
# The result of a Fetch or ListOffsets before any byte is read: the readable range, or what to
# search
#
# Source: KIP-98 (read_committed), KIP-320 (leader epochs in Fetch),
# kafka.cluster.Partition.readRecords and fetchOffsetForTimestamp.


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBounds:
    """Read whole batches from the one with first_offset, up to end_offset (exclusive).

    Equal: nothing to read now.
    """

    first_offset: int
    end_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Diverging:
    """The reader's log diverges: here leader_epoch ended at end_offset (exclusive)."""

    leader_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAnswer:
    """The ListOffsets response; every field is -1 if nothing was found."""

    offset: int
    timestamp: int
    leader_epoch: int


NOTHING_FOUND = OffsetAnswer(offset=-1, timestamp=-1, leader_epoch=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTimestamp:
    """Search the segments for the first record with this timestamp or a later one, below
    end_offset.
    """

    timestamp: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchMaxTimestamp:
    """Search the segments for the first record with the maximum timestamp, below end_offset."""

    end_offset: int


# --------------------------------------------------------------------------------------------------
# Following a leader
#
# A follower fetches from its log end offset with the epoch of its last record. If the leader's log
# diverges before that, the response has the diverging epoch and its end offset, and the follower
# truncates to the largest possibly common offset; several epochs take several requests. A follower
# outside of the leader's offset range sends ListOffsets for both ends.


class LogBounds(Protocol):
    """The properties of the replica's own log that following reads."""

    log_start_offset: int
    local_start_offset: int
    log_end_offset: int
    high_watermark: int
    epochs: LeaderEpochs


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchWish:
    """The partition's fields in a Fetch request."""

    fetch_offset: int
    last_fetched_epoch: int
    leader_epoch: int
    log_start_offset: int


class OffsetWish(Enum):
    """The timestamp of a ListOffsets request to the leader."""

    LATEST = auto()
    EARLIEST = auto()


@dataclass(frozen=True, slots=True)
class Accept:
    """Append the fetched batches (possibly none), then pass on the leader's high watermark and log
    start offset.
    """

    high_watermark: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Truncate the log to this offset, with producer state and epochs."""

    offset: int


@dataclass(frozen=True, slots=True)
class RestartAt:
    """Delete the whole log, and restart it empty at this offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class BackOff:
    """Retry after replica.fetch.backoff.ms."""

    why: str


@dataclass(frozen=True, slots=True)
class Halt:
    """Stop fetching in this leader epoch: there is a newer leader, and the metadata will name
    it.
    """

    why: str


@dataclass(frozen=True, slots=True)
class Ignore:
    """The response belongs to an outdated request."""


@dataclass(frozen=True, slots=True)
class AskForOffsets:
    """The log is outside of the leader's offset range: send ListOffsets next."""


@dataclass(frozen=True, slots=True)
class RebuildFromTier:
    """The fetch offset is in remote storage only: restart after it
    (`tiered_storage.follower_rebuild`), then continue.

    `log_start_offset` is the start of the leader's whole log.
    """

    log_start_offset: int


NextStep = (
    RebuildFromTier | Accept | TruncateTo | RestartAt | BackOff | Halt | Ignore | AskForOffsets
)
IGNORE: Final = Ignore()
ASK_FOR_OFFSETS: Final = AskForOffsets()


class Following:
    """Following in one leader epoch of another broker.

    The caller sends the request of `wish()` and passes in the response; it executes every step at
    once.
    """

    __slots__ = ("_log", "_wished", "is_halted", "leader_epoch", "leader_id", "needs")

    def __init__(self, log: LogBounds, *, leader_id: int, leader_epoch: int) -> None:
        self._log = log
        self._wished: FetchWish | None = None
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.is_halted = False
        self.needs: OffsetWish | None = None
        """The ListOffsets to send before any Fetch; None if not needed."""

    def begin(self) -> TruncateTo | RestartAt | None:
        """Return the step before the first Fetch: a log without epochs cannot be compared, so it is
        truncated to the high watermark.
        """
        if (
            self._log.epochs.latest_epoch is None
            and self._log.log_end_offset > self._log.high_watermark
        ):
            return self._truncate_to(self._log.high_watermark)
        return None

    def wish(self) -> FetchWish | OffsetWish | None:
        """Return the request to send, the same object while unchanged; None after Halt."""
        if self.is_halted:
            return None
        if self.needs is not None:
            return self.needs
        log, wished = self._log, self._wished
        latest_epoch = log.epochs.latest_epoch
        if latest_epoch is None:
            latest_epoch = NO_LEADER_EPOCH
        if (
            wished is None
            or wished.fetch_offset != log.log_end_offset
            or wished.last_fetched_epoch != latest_epoch
            or wished.log_start_offset != log.log_start_offset
        ):
            wished = self._wished = FetchWish(
                fetch_offset=log.log_end_offset,
                last_fetched_epoch=latest_epoch,
                leader_epoch=self.leader_epoch,
                log_start_offset=log.log_start_offset,
            )
        return wished

    def on_fetched(
        self,
        wish: FetchWish,
        *,
        error: ErrorCode,
        high_watermark: int = NO_OFFSET,
        log_start_offset: int = NO_OFFSET,
        diverging: Diverging | None = None,
    ) -> NextStep:
        """Handle a Fetch response."""
        if self.is_halted or self.needs is not None or wish != self.wish():
            # the request was for a former state of the log, even if the end offset is the same
            return IGNORE
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.needs = OffsetWish.LATEST
            return ASK_FOR_OFFSETS
        if error is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            return RebuildFromTier(log_start_offset)
        if error is not ErrorCode.NONE:
            return self._on_error(error)
        if diverging is not None:
            return self._truncate_to(self._common_end(diverging))
        return Accept(high_watermark, log_start_offset)

    def on_offset(self, wish: OffsetWish, *, error: ErrorCode, offset: int = NO_OFFSET) -> NextStep:
        """Handle a ListOffsets response: first the leader's end offset, then, if that is not below
        this log's, its start offset.
        """
        if self.is_halted or self.needs is not wish:
            return IGNORE
        if error is not ErrorCode.NONE:
            return self._on_error(error)
        log_end_offset = self._log.log_end_offset
        if wish is OffsetWish.LATEST and offset >= log_end_offset:
            self.needs = OffsetWish.EARLIEST
            return ASK_FOR_OFFSETS
        self.needs = None
        if wish is OffsetWish.LATEST:
            return self._truncate_to(offset)
        return (
            RestartAt(offset)
            if offset > log_end_offset
            else BackOff(
                f"offset {log_end_offset} is in the leader's log, which begins at {offset}"
            )
        )

    def _truncate_to(self, offset: int) -> TruncateTo | RestartAt:
        """Truncate the log to an offset.

        A log that begins behind it restarts there (UnifiedLog.truncateTo).

        After an unclean election the leader's end offset may be below this log's start, or its
        local start.
        """
        return RestartAt(offset) if offset < self._log.local_start_offset else TruncateTo(offset)

    def _on_error(self, error: ErrorCode) -> NextStep:
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            self.is_halted = True
            return Halt(f"leader epoch {self.leader_epoch} is over")
        return BackOff(error.name)

    def _common_end(self, diverging: Diverging) -> int:
        """Return the largest offset up to which the logs may be equal, as known so far."""
        log_end_offset = self._log.log_end_offset
        if diverging.end_offset == NO_OFFSET:
            return log_end_offset
        if diverging.leader_epoch == NO_LEADER_EPOCH:
            return min(diverging.end_offset, log_end_offset)
        epoch, end_offset = self._log.epochs.end_offset_for(diverging.leader_epoch, log_end_offset)
        if epoch == NO_LEADER_EPOCH:
            return min(diverging.end_offset, log_end_offset)
        if epoch != diverging.leader_epoch:
            return min(end_offset, log_end_offset)
        return min(end_offset, diverging.end_offset, log_end_offset)
