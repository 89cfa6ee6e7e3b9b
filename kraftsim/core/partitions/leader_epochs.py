"""The start offset of each leader epoch in a log, so that two logs can be compared without
comparing records.

Source: KIP-101, KIP-279, org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache.
"""

from collections.abc import Iterable
from typing import Final

from protocol.disk.leader_epoch_checkpoint import EpochStart

NO_LEADER_EPOCH: Final = -1
NO_OFFSET: Final = -1


class LeaderEpochs:
    """The epochs of one log, oldest first. Changes are written to the `leader-epoch-checkpoint`."""

    __slots__ = ("_starts", "latest_epoch")

    latest_epoch: int | None
    """The epoch of the last entry; None without entries."""

    def __init__(self, starts: Iterable[EpochStart] = ()) -> None:
        self._starts = list(starts)
        self.latest_epoch = self._starts[-1].leader_epoch if self._starts else None

    @property
    def starts(self) -> tuple[EpochStart, ...]:
        """Every epoch with its start offset."""
        return tuple(self._starts)

    def assign(self, leader_epoch: int, start_offset: int) -> bool:
        """Assign a start offset to an epoch, and return whether anything changed.

        Conflicting entries (later offset or higher epoch) are removed.
        """
        assert leader_epoch >= 0 and start_offset >= 0, (
            f"epoch {leader_epoch} cannot start at {start_offset}"
        )
        if (
            self._starts
            and self._starts[-1].leader_epoch == leader_epoch
            and start_offset >= self._starts[-1].start_offset
        ):
            return False
        self._starts = [
            start
            for start in self._starts
            if start.leader_epoch < leader_epoch and start.start_offset < start_offset
        ]
        self._starts.append(EpochStart(leader_epoch, start_offset))
        self.latest_epoch = leader_epoch
        return True

    def epoch_at(self, offset: int) -> int | None:
        """Return the epoch of the record at an offset; None if unknown."""
        return next(
            (
                start.leader_epoch
                for start in reversed(self._starts)
                if start.start_offset <= offset
            ),
            None,
        )

    def end_offset_for(self, leader_epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (epoch, end offset): the highest epoch here that is not above the requested one,
        and its end offset.

        An epoch that is absent or above the latest gives (-1, -1); one below the oldest gives
        itself and the start of the oldest.
        """
        latest = self.latest_epoch
        if leader_epoch == NO_LEADER_EPOCH or latest is None or leader_epoch > latest:
            return NO_LEADER_EPOCH, NO_OFFSET
        if leader_epoch == latest:
            return leader_epoch, log_end_offset
        higher = next(start for start in self._starts if start.leader_epoch > leader_epoch)
        lower = [start.leader_epoch for start in self._starts if start.leader_epoch <= leader_epoch]
        return (lower[-1] if lower else leader_epoch), higher.start_offset

    def advance_log_start(self, log_start_offset: int) -> bool:
        """Truncate from the start: remove epochs that end before the new log start offset, and
        return whether anything changed.
        """
        later = [start for start in self._starts if start.start_offset > log_start_offset]
        earlier = [start for start in self._starts if start.start_offset <= log_start_offset]
        if not earlier or (len(earlier) == 1 and earlier[0].start_offset == log_start_offset):
            return False
        self._starts = [EpochStart(earlier[-1].leader_epoch, log_start_offset), *later]
        return True

    def truncate_to(self, end_offset: int) -> None:
        """Truncate from the end: remove epochs that start at or after end_offset."""
        self._starts = [start for start in self._starts if start.start_offset < end_offset]
        self.latest_epoch = self._starts[-1].leader_epoch if self._starts else None
