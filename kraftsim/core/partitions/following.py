"""A replica that follows: what it asks its leader for next, and what the answer makes of its log.

A follower asks for the end of its log and says in which epoch its last record was written. If the leader's log parted before that, the answer says
where (KIP-595), and the follower cuts its own back to the last point that both may share; with several epochs in between, this takes several
questions. Whoever is outside of the leader's log asks where that begins and ends.
Source: KIP-101, KIP-279, AbstractFetcherThread.{processFetchRequest, getOffsetTruncationState, fetchOffsetAndTruncate}, ReplicaFetcherThread.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

from kraftsim.core.partitions.leader_epochs import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpochs
from kraftsim.core.partitions.read_bounds import Diverging
from protocol.errors import ErrorCode


class LogBounds(Protocol):
    """What following needs to know of the replica's own log."""

    log_start_offset: int
    local_start_offset: int
    log_end_offset: int
    high_watermark: int
    epochs: LeaderEpochs


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchWish:
    """What goes into a Fetch for this partition."""

    fetch_offset: int
    last_fetched_epoch: int
    leader_epoch: int
    log_start_offset: int


class OffsetWish(Enum):
    """What goes into a ListOffsets to the leader."""

    LATEST = auto()
    EARLIEST = auto()


@dataclass(frozen=True, slots=True)
class Accept:
    """Append what came (it may be nothing), then call `LogBounds`' owner with these: the leader's high watermark and the start of its log."""

    high_watermark: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class CutTo:
    """Cut off everything from this offset on, producer state and epochs with it."""

    offset: int


@dataclass(frozen=True, slots=True)
class RestartAt:
    """Drop the whole log, and go on with an empty one that begins here."""

    offset: int


@dataclass(frozen=True, slots=True)
class BackOff:
    """Ask again after replica.fetch.backoff.ms."""

    why: str


@dataclass(frozen=True, slots=True)
class Halt:
    """Ask no more in this leader epoch: somebody newer leads, and the metadata will say who."""

    why: str


@dataclass(frozen=True, slots=True)
class Ignore:
    """The answer is to a question of the past."""


@dataclass(frozen=True, slots=True)
class AskForOffsets:
    """The log is outside of the leader's: ListOffsets comes next."""


@dataclass(frozen=True, slots=True)
class RebuildFromTier:
    """What is asked for is in the remote store only: begin anew behind it (`core.tiered_storage.rebuilding`), then go on.

    `log_start_offset` is where the leader's whole log begins.
    """

    log_start_offset: int


NextStep = RebuildFromTier | Accept | CutTo | RestartAt | BackOff | Halt | Ignore | AskForOffsets
IGNORE: Final = Ignore()
ASK_FOR_OFFSETS: Final = AskForOffsets()


class Following:
    """One leader epoch of another broker. The shell asks `wish()` and hands in what comes back; it carries out every step at once."""

    __slots__ = ("_log", "_wished", "is_halted", "leader_epoch", "leader_id", "needs")

    def __init__(self, log: LogBounds, *, leader_id: int, leader_epoch: int) -> None:
        self._log = log
        self._wished: FetchWish | None = None
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.is_halted = False
        self.needs: OffsetWish | None = None
        """What must be asked by ListOffsets before anything is fetched; None if nothing must."""

    def begin(self) -> CutTo | RestartAt | None:
        """Return what to do before the first Fetch: a log that knows no epochs cannot be compared, only what was committed is kept of it."""
        if self._log.epochs.latest_epoch is None and self._log.log_end_offset > self._log.high_watermark:
            return self._cut_to(self._log.high_watermark)
        return None

    def wish(self) -> FetchWish | OffsetWish | None:
        """Return what to ask the leader for, the same object as long as it is the same; None once it is of no use."""
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
        """Judge the leader's answer to a Fetch."""
        if self.is_halted or self.needs is not None or wish != self.wish():
            return IGNORE  # the question was about a log that was another one, be it as long as this one
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.needs = OffsetWish.LATEST
            return ASK_FOR_OFFSETS
        if error is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            return RebuildFromTier(log_start_offset)
        if error is not ErrorCode.NONE:
            return self._on_error(error)
        if diverging is not None:
            return self._cut_to(self._common_end(diverging))
        return Accept(high_watermark, log_start_offset)

    def on_offset(self, wish: OffsetWish, *, error: ErrorCode, offset: int = NO_OFFSET) -> NextStep:
        """Judge the leader's answer to a ListOffsets: first where its log ends, then, if that is not before our end, where it begins."""
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
            return self._cut_to(offset)
        return RestartAt(offset) if offset > log_end_offset else BackOff(f"offset {log_end_offset} is in the leader's log, which begins at {offset}")

    def _cut_to(self, offset: int) -> CutTo | RestartAt:
        """Cut the log back to an offset. One that begins here behind it has nothing that may stay: it begins anew there (UnifiedLog.truncateTo).

        After an unclean election the leader's log may be shorter than what this one has deleted, or has in the remote store only.
        """
        return RestartAt(offset) if offset < self._log.local_start_offset else CutTo(offset)

    def _on_error(self, error: ErrorCode) -> NextStep:
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            self.is_halted = True
            return Halt(f"leader epoch {self.leader_epoch} is over")
        return BackOff(error.name)

    def _common_end(self, diverging: Diverging) -> int:
        """Return up to where this log may be the leader's, as far as both can tell by now."""
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
