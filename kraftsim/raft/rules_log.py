"""The metadata log as elections and replication use it: start, end, epochs, flushed and committed
offsets.

No bytes here: `kraftsim.raft.raft_node` writes, truncates and flushes records.
Source: org.apache.kafka.raft.{ReplicatedLog, ValidOffsetAndEpoch}, kafka.raft.KafkaMetadataLog.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec import Struct

from kraftsim.partitions.rules_log import LeaderEpochs
from protocol.storage.text_files import EpochStart


class LogEnd(NamedTuple):
    """The epoch of the last record and the end offset.

    The greater of two is the more complete log.
    """

    epoch: int
    offset: int


class SnapshotId(NamedTuple):
    """A snapshot, by its end offset (exclusive) and the epoch of its last record."""

    end_offset: int
    epoch: int


FORMAT_SNAPSHOT: Final = SnapshotId(0, 0)
"""The bootstrap snapshot from formatting: voters only. It is never sent to others."""


class DivergingEpoch(Struct, frozen=True):
    """The fetching replica's log may match this one up to here at most."""

    epoch: int
    end_offset: int


class RaftLog:
    """Offsets and epochs of one replica's log. An empty log ends at (0, 0)."""

    def __init__(
        self,
        *,
        start_offset: int = 0,
        end_offset: int = 0,
        epoch_starts: Iterable[EpochStart] = (),
        snapshots: Iterable[SnapshotId] = (),
    ) -> None:
        self.epochs = LeaderEpochs(epoch_starts)
        self.snapshots = sorted(snapshots)
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.flushed_end_offset = end_offset
        """The first offset that a power loss may lose.

        A loaded log counts as flushed: the node flushes it at startup.
        """
        self.high_watermark: int | None = None
        """The first offset that is not known to be committed."""

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record; of the snapshot, if the log after it is empty; 0 for an
        empty log.
        """
        latest = self.epochs.latest_epoch
        if latest is not None:
            return latest
        return self.snapshots[-1].epoch if self.snapshots else 0

    @property
    def end(self) -> LogEnd:
        """Epoch and offset of the end."""
        return LogEnd(self.last_epoch, self.end_offset)

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The latest snapshot that may be sent to others."""
        return (
            self.snapshots[-1] if self.snapshots and self.snapshots[-1] != FORMAT_SNAPSHOT else None
        )

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        """The oldest retained snapshot."""
        return self.snapshots[0] if self.snapshots else None

    def append(self, leader_epoch: int, record_count: int) -> int:
        """Append records of an epoch, and return the offset of the first."""
        assert record_count > 0, "a batch has at least one record"
        assert leader_epoch >= self.last_epoch, (
            f"epoch {leader_epoch} after records of epoch {self.last_epoch}"
        )
        first_offset = self.end_offset
        self.epochs.assign(leader_epoch, first_offset)
        self.end_offset += record_count
        return first_offset

    def truncate_to(self, end_offset: int) -> None:
        """Truncate from end_offset on. Committed records cannot be truncated."""
        assert self.high_watermark is None or end_offset >= self.high_watermark, (
            f"{end_offset} is below the high watermark {self.high_watermark}"
        )
        assert end_offset >= self.start_offset, (
            f"{end_offset} is below the log start offset, {self.start_offset}"
        )
        self.epochs.truncate_to(end_offset)
        self.end_offset = min(self.end_offset, end_offset)
        self.flushed_end_offset = min(self.flushed_end_offset, end_offset)

    def advance_log_start(self, snapshot: SnapshotId) -> list[SnapshotId]:
        """Replace the whole log by a snapshot, which is its start and end; everything in it is
        committed.

        Returns the older snapshots, which are deleted: with a log start after its earliest
        snapshot, a replica that has this snapshot would have to refetch it.
        """
        gone = [other for other in self.snapshots if other < snapshot]
        self.snapshots = [other for other in self.snapshots if other >= snapshot]
        self.add_snapshot(snapshot)
        self.epochs = LeaderEpochs()
        self.start_offset = self.end_offset = self.flushed_end_offset = snapshot.end_offset
        self.high_watermark = snapshot.end_offset
        return gone

    def add_snapshot(self, snapshot: SnapshotId) -> None:
        """Add a complete snapshot."""
        if snapshot not in self.snapshots:
            self.snapshots = sorted([*self.snapshots, snapshot])

    def delete_before(self, snapshot: SnapshotId) -> list[SnapshotId]:
        """Advance the log start offset to a snapshot, and return the older ones, which are
        deleted.
        """
        assert snapshot in self.snapshots, f"there is no snapshot {snapshot}"
        gone = [other for other in self.snapshots if other < snapshot]
        self.snapshots = [other for other in self.snapshots if other >= snapshot]
        self.start_offset = max(self.start_offset, snapshot.end_offset)
        kept = [start for start in self.epochs.starts if start.start_offset >= self.start_offset]
        epoch = self.epochs.epoch_at(self.start_offset)
        if (
            epoch is not None
            and (not kept or kept[0].start_offset > self.start_offset)
            and self.start_offset < self.end_offset
        ):
            kept = [EpochStart(epoch, self.start_offset), *kept]
        self.epochs = LeaderEpochs(kept)
        return gone

    def epoch_before(self, end_offset: int) -> int:
        """Return the epoch of the last record before an offset; -1 if unknown here."""
        found = self.epochs.epoch_at(end_offset - 1)
        if found is not None:
            return found
        return next(
            (snapshot.epoch for snapshot in self.snapshots if snapshot.end_offset == end_offset), -1
        )

    def end_of_epoch(self, epoch: int) -> DivergingEpoch:
        """Return the highest epoch here that is not above the requested one, and its end offset."""
        found, end_offset = self.epochs.end_offset_for(epoch, self.end_offset)
        if found < 0:  # above everything here, or nothing is here
            return DivergingEpoch(self.last_epoch, self.end_offset)
        earliest = self.earliest_snapshot
        if (
            earliest is not None and end_offset == earliest.end_offset and found == epoch
        ):  # below everything here
            return DivergingEpoch(earliest.epoch, earliest.end_offset)
        return DivergingEpoch(found, end_offset)

    def agreement_with(
        self, fetch_offset: int, last_fetched_epoch: int
    ) -> DivergingEpoch | SnapshotId | None:
        """Compare with a log that ends at an offset with a record of an epoch.

        None: it is a prefix of this one.

        Else the largest possibly common offset, or the snapshot to fetch, if the missing records
        are not in the log any more.
        """
        latest = self.latest_snapshot
        if fetch_offset == 0 and latest is not None:
            return latest
        if self.start_offset == 0 and fetch_offset == 0:
            return None
        earliest = self.earliest_snapshot
        if earliest is not None and latest is not None:
            is_before = fetch_offset < self.start_offset
            is_another_start = (
                fetch_offset == self.start_offset and last_fetched_epoch != earliest.epoch
            )
            if is_before or is_another_start or last_fetched_epoch < earliest.epoch:
                return latest
        found = self.end_of_epoch(last_fetched_epoch)
        return (
            found if found.epoch != last_fetched_epoch or found.end_offset < fetch_offset else None
        )
