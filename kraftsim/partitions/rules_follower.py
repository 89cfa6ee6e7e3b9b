"""A follower's side of replication: its requests to the leader and the handling of the responses;
besides, the results of reads, which leader and follower share.

Source: KIP-101, KIP-279, KIP-595, AbstractFetcherThread.{processFetchRequest,
getOffsetTruncationState, fetchOffsetAndTruncate}, ReplicaFetcherThread.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

from msgspec import Struct

from kraftsim.partitions.rules_log import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpochs
from protocol.errors import ErrorCode

# --------------------------------------------------------------------------------------------------
# The result of a Fetch or ListOffsets before any byte is read: the readable range, or what to
# search
#
# Source: KIP-98 (read_committed), KIP-320 (leader epochs in Fetch),
# kafka.cluster.Partition.readRecords and fetchOffsetForTimestamp.


class ReadBounds(Struct, frozen=True, kw_only=True):
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


class FetchWish(Struct, frozen=True, kw_only=True):
    """The partition's fields in a Fetch request."""

    fetch_offset: int
    last_fetched_epoch: int
    leader_epoch: int
    log_start_offset: int


class OffsetWish(Enum):
    """The timestamp of a ListOffsets request to the leader."""

    LATEST = auto()
    EARLIEST = auto()


class Accept(Struct, frozen=True):
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
