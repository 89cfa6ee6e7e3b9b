"""Opens the log of a partition: first its batches, then its producer state.

After a clean shutdown small files contain both; after a crash everything since the last flush is
read batch by batch. So is everything after a damaged transaction index: read_committed consumers
would otherwise see aborted records.

Source: LogLoader (load, recoverLog), UnifiedLog.rebuildProducerState.
"""

from kraftsim.partitions.log import PartitionLog
from kraftsim.partitions.producer_snapshots import ProducerSnapshots
from kraftsim.producer_state.rules_manager import ProducerStateManager
from kraftsim.world.interface import World
from protocol.records.batches import RecordBatch


def recover_partition(
    world: World,
    log: PartitionLog,
    state: ProducerStateManager,
    *,
    recovery_point: int | None,
    log_start_offset: int,
    snapshots_of: type[ProducerSnapshots] = ProducerSnapshots,
    is_tiered: bool = False,
    chained_from: int | None = None,
) -> ProducerSnapshots:
    """Recover a log and its empty producer state; return the producer snapshots of the log.

    `recovery_point`: everything before it is flushed; None after a clean shutdown.
    `log_start_offset`: the known log start offset. `snapshots_of`: the class of the snapshots.
    `is_tiered`: the log may start in remote storage. `chained_from`: from this offset on nothing
    was compacted (`PartitionLog.recover`).
    """
    snapshots = snapshots_of(world, log.directory)
    snapshots.remove_strays(log.found_base_offsets())
    log.is_tiered = is_tiered
    damaged_from = log.remove_damaged_indexes()
    if damaged_from is not None:
        recovery_point = (
            damaged_from if recovery_point is None else min(recovery_point, damaged_from)
        )
    is_upgrade = snapshots.are_from_an_upgrade(was_stopped_cleanly=recovery_point is None)
    if is_upgrade or recovery_point is None:
        log.recover(
            lambda batch: None,
            verify_from_offset=recovery_point,
            on_unclean=lambda base_offset: None,
        )
        log.advance_log_start(min(log_start_offset, log.log_end_offset))
        if is_upgrade:
            snapshots.begin_empty(state, log)
        else:
            snapshots.rebuild(state, log)
        return snapshots
    known = UncleanState(snapshots, log, state, log_start_offset)
    log.recover(
        known.take,
        verify_from_offset=recovery_point,
        on_unclean=known.begin_segment,
        chained_from=chained_from,
    )
    log.advance_log_start(min(log_start_offset, log.log_end_offset))
    snapshots.remove_behind(log.log_end_offset)
    snapshots.take(state, log.log_end_offset)
    return snapshots


class UncleanState:
    """Rebuilds producer state during the recovery of an unclean log: from a snapshot and the
    batches that recovery reads.
    """

    def __init__(
        self,
        snapshots: ProducerSnapshots,
        log: PartitionLog,
        state: ProducerStateManager,
        log_start_offset: int,
    ) -> None:
        self._snapshots = snapshots
        self._log = log
        self._state = state
        self._log_start_offset = log_start_offset
        self._has_begun = False

    def begin_segment(self, base_offset: int) -> None:
        """The batches of this segment come next; those of earlier segments are known to be
        valid.
        """
        if not self._has_begun:
            self._has_begun = True
            log_start_offset = max(self._log_start_offset, self._log.log_start_offset)
            covered = self._snapshots.load(
                self._state, log_start_offset=log_start_offset, log_end_offset=base_offset
            )
            first_offset = self._snapshots.first_to_replay(self._state, self._log, covered)
            self._log.replay(self._state.replay, first_offset=first_offset, end_offset=base_offset)
        self._snapshots.take(self._state, base_offset)

    def take(self, batch: RecordBatch) -> None:
        """Apply a valid batch."""
        if batch.next_offset > self._log_start_offset:
            aborted = self._state.replay(batch)
            if aborted is not None:
                self._log.add_aborted(aborted)
