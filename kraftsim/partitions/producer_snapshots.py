"""The producer snapshots of one log: written when a segment starts and when the log is closed, read
when it is opened or truncated.

A snapshot is only an optimization. If one is damaged, an older one and the batches after it contain
the same state; without any, the whole log does. They are flushed together with the log, not when
they are written.

Source: ProducerStateManager (takeSnapshot, loadFromSnapshot, truncateAndReload,
removeStraySnapshots), KAFKA-9393, UnifiedLog.rebuildProducerState.
"""

from collections.abc import Sequence

from kraftsim.partitions.log import PartitionLog
from kraftsim.producer_state.rules_entries import snapshot_file, state_entries
from kraftsim.producer_state.rules_manager import ProducerStateManager
from kraftsim.world.interface import World
from protocol.malformed import MalformedFile
from protocol.storage.file_names import (
    PRODUCER_SNAPSHOT,
    parse_segment_file_name,
    segment_file_name,
)
from protocol.storage.producer_snapshot import parse_producer_rows

SEGMENTS_WITH_SNAPSHOTS = 2
"""A rebuild writes a snapshot at the start of each of the newest segments, this many."""


class ProducerSnapshots:
    """The files of one log, by the offset in their names: the first one that they do not cover.

    OSErrors are passed on.
    """

    def __init__(self, world: World, directory: str) -> None:
        self._world = world
        self._disk = world.disk
        self._directory = directory
        named = (parse_segment_file_name(name) for name in self._disk.list(directory))
        self._offsets = sorted(
            each.offset for each in named if each is not None and each.suffix == PRODUCER_SNAPSHOT
        )
        self._unflushed: list[int] = []
        self._taken_until = 0
        """The offset of the newest snapshot written or read here."""

    @property
    def offsets(self) -> Sequence[int]:
        """The offsets of the snapshots, ascending."""
        return tuple(self._offsets)

    # Writing
    # ----------------------------------------------------------------------------------------------

    def take(self, state: ProducerStateManager, offset: int, *, is_replaced: bool = False) -> bool:
        """Write the state before `offset`, unless the newest snapshot covers as much; return
        whether it was written.

        `is_replaced`: the state came from elsewhere, and is written in any case.
        """
        if offset <= self._taken_until and not is_replaced:
            return False
        self._remove(offset)
        file = self._disk.open(self._path(offset))
        try:
            file.append([snapshot_file(state.entries.values())])
        finally:
            file.close()
        self._offsets = sorted([*self._offsets, offset])
        self._unflushed.append(offset)
        self._taken_until = offset
        return True

    def add(self, state: ProducerStateManager, offset: int) -> None:
        """Write the missing snapshot at the end of an older segment.

        From now on it is treated like any other.
        """
        taken_until = self._taken_until
        self.take(state, offset, is_replaced=True)
        self._taken_until = max(taken_until, offset)

    async def flush(self) -> None:
        """Flush the contents of written snapshots; their names are flushed with the log's
        directory.
        """
        while self._unflushed:
            offset = self._unflushed.pop(0)
            if offset in self._offsets:
                file = self._disk.open(self._path(offset))
                try:
                    await file.flush()
                finally:
                    file.close()

    def remove_before(self, offset: int) -> None:
        """Delete the snapshots of removed segments at the start of the log."""
        for each in [each for each in self._offsets if each < offset]:
            self._remove(each)

    def remove_at(self, offsets: Sequence[int]) -> None:
        """Delete the snapshots at the start of segments that were merged into another one."""
        for each in [each for each in self._offsets if each in offsets]:
            self._remove(each)

    def remove_behind(self, offset: int) -> None:
        """Delete the snapshots beyond the log end offset."""
        for each in [each for each in self._offsets if each > offset]:
            self._remove(each)

    def restart_at(self, offset: int) -> None:
        """The log is empty and starts at an offset: delete all earlier state."""
        for each in self.offsets:
            self._remove(each)
        self._taken_until = offset

    # Reading
    # ----------------------------------------------------------------------------------------------

    def remove_strays(self, base_offsets: Sequence[int]) -> None:
        """Delete the snapshots at which no segment starts, except the last one if it is behind all
        segments: the one of a clean shutdown.
        """
        strays = [each for each in self._offsets if each not in base_offsets]
        kept = strays[-1] if strays and strays[-1] > max(base_offsets, default=0) else None
        for stray in strays:
            if stray != kept:
                self._remove(stray)

    def load(
        self, state: ProducerStateManager, *, log_start_offset: int, log_end_offset: int
    ) -> int:
        """Load the state from the newest valid snapshot of the log, and return the first offset
        that it does not cover.

        Snapshots outside the log, and damaged ones, are deleted. Without any the state is empty and
        covers nothing.
        """
        for offset in [
            each for each in self._offsets if each > log_end_offset or each <= log_start_offset
        ]:
            self._remove(offset)
        for offset in reversed(self.offsets):
            try:
                entries = parse_producer_rows(self._disk.read(self._path(offset)))
            except MalformedFile:
                self._remove(offset)
                continue
            state.load(state_entries(entries, state.entry_class), self._world.clock.wall_ms())
            state.on_log_start(log_start_offset)
            self._taken_until = offset
            return offset
        state.load((), self._world.clock.wall_ms())
        self._taken_until = log_start_offset
        return log_start_offset

    def rebuild(self, state: ProducerStateManager, log: PartitionLog) -> None:
        """Rebuild the state from the newest snapshot and the batches after it.

        New snapshots make the next rebuild faster.
        """
        next_offset = self.load(
            state, log_start_offset=log.log_start_offset, log_end_offset=log.log_end_offset
        )
        next_offset = self.first_to_replay(state, log, max(next_offset, log.local_start_offset))
        newest = log.base_offsets[-SEGMENTS_WITH_SNAPSHOTS:]
        for stop_offset in [*(each for each in newest if each > next_offset), log.log_end_offset]:
            log.replay(state.replay, first_offset=next_offset, end_offset=stop_offset)
            self.take(state, stop_offset)
            next_offset = stop_offset

    def first_to_replay(self, state: ProducerStateManager, log: PartitionLog, covered: int) -> int:
        """Return the offset from which the log is replayed if snapshots cover it up to `covered`:
        that offset.
        """
        return covered

    def are_from_an_upgrade(self, *, was_stopped_cleanly: bool) -> bool:
        """Return whether snapshots are missing because the log predates them, so that it need not
        be replayed (KAFKA-5435: only then).
        """
        return was_stopped_cleanly and not self._offsets

    def begin_empty(self, state: ProducerStateManager, log: PartitionLog) -> None:
        """Treat a cleanly closed log without any snapshot as one without producers: it predates
        snapshots.

        Deleting the snapshots of a stopped broker therefore loses its producer state, in Apache
        Kafka as well.
        """
        for offset in [*log.base_offsets[-SEGMENTS_WITH_SNAPSHOTS:], log.log_end_offset]:
            self.take(state, offset)

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{segment_file_name(offset, PRODUCER_SNAPSHOT)}"

    def _remove(self, offset: int) -> None:
        if offset in self._offsets:
            self._offsets.remove(offset)
            self._disk.remove(self._path(offset))


# --------------------------------------------------------------------------------------------------
# Producer snapshots of brokers before 2.8: only those of the last two segments are kept
#
# Such a broker leaves most segments without snapshots, which are missing only when the segments
# are copied to remote storage.
# Source: KAFKA-9393; kafka.log.ProducerStateManager.deleteSnapshotsBefore,
# Log.deleteSnapshotsAfterRecoveryPointCheckpoint of 2.7.

KEPT = 2


class NewestSnapshots(ProducerSnapshots):
    """Deletes older snapshots whenever one is taken."""

    def take(self, state: ProducerStateManager, offset: int, *, is_replaced: bool = False) -> bool:
        """Write the state, and delete all but the last two."""
        is_taken = super().take(state, offset, is_replaced=is_replaced)
        self.remove_at(self.offsets[:-KEPT])
        return is_taken


# --------------------------------------------------------------------------------------------------
# Restores producer state by replaying only the segments that can matter: producers in segments
# older than producer.id.expiration.ms have expired
#
# The proposal of empty producer snapshots calls it the ideal solution where all snapshots are
# lost: recovery starts at the oldest segment with a record of that period. A producer without a
# record since then has expired, unless it has an open transaction, which never expires.
# Source: KAFKA-15195 (the ideal solution of the proposal, which was never implemented).


class BoundedReplay(ProducerSnapshots):
    """Skips segments without a record younger than the expiration."""

    def first_to_replay(self, state: ProducerStateManager, log: PartitionLog, covered: int) -> int:
        """Start at the oldest relevant segment, unless a snapshot covers more."""
        oldest_ms = self._world.clock.wall_ms() - state.expiration_ms
        young = (each.base_offset for each in log.segments if each.max_timestamp > oldest_ms)
        return max(covered, next(young, log.base_offsets[-1]))

    def are_from_an_upgrade(self, *, was_stopped_cleanly: bool) -> bool:
        """Return False: a log without snapshots has lost them and is replayed, even after a clean
        shutdown.
        """
        return False
