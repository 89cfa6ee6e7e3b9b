"""Opening the log of a partition: first what is in it, then what it says of its producers.

After a clean stop both are told by small files; what was written since the last flush before a crash is looked at batch by batch. So is everything
behind a transaction index that cannot be read: readers of committed data would see what was aborted.

Source: LogLoader (load, recoverLog), UnifiedLog.rebuildProducerState.
"""

from kraftsim.core.producer_state.manager import ProducerStateManager
from kraftsim.node.log import PartitionLog
from kraftsim.node.producer_snapshots import ProducerSnapshots
from kraftsim.world.interface import World
from protocol.batches import RecordBatch


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
    """Recover a log and its empty producer state; the snapshots of the log come back.

    `recovery_point`: everything before it is on disk; None after a clean stop. `log_start_offset`: where the log began, as far as that is known.
    `snapshots_of`: what keeps them. `is_tiered`: the log may begin in a remote store.
    `chained_from`: from where on nothing of it was cleaned (`PartitionLog.recover`).
    """
    snapshots = snapshots_of(world, log.directory)
    snapshots.remove_strays(log.found_base_offsets())
    log.is_tiered = is_tiered
    damaged_from = log.remove_damaged_indexes()
    if damaged_from is not None:
        recovery_point = damaged_from if recovery_point is None else min(recovery_point, damaged_from)
    is_upgrade = snapshots.are_from_an_upgrade(was_stopped_cleanly=recovery_point is None)
    if is_upgrade or recovery_point is None:
        log.recover(lambda batch: None, verify_from_offset=recovery_point, on_unclean=lambda base_offset: None)
        log.begin_at(min(log_start_offset, log.log_end_offset))
        if is_upgrade:
            snapshots.begin_empty(state, log)
        else:
            snapshots.rebuild(state, log)
        return snapshots
    known = UncleanState(snapshots, log, state, log_start_offset)
    log.recover(known.take, verify_from_offset=recovery_point, on_unclean=known.begin_segment, chained_from=chained_from)
    log.begin_at(min(log_start_offset, log.log_end_offset))
    snapshots.remove_behind(log.log_end_offset)
    snapshots.take(state, log.log_end_offset)
    return snapshots


class UncleanState:
    """The producer state of a log whose end must be looked at: it is built from the very batches that are, behind what a snapshot says."""

    def __init__(self, snapshots: ProducerSnapshots, log: PartitionLog, state: ProducerStateManager, log_start_offset: int) -> None:
        self._snapshots = snapshots
        self._log = log
        self._state = state
        self._log_start_offset = log_start_offset
        self._has_begun = False

    def begin_segment(self, base_offset: int) -> None:
        """The batches of this segment come next; those of the segments before it are known to be whole."""
        if not self._has_begun:
            self._has_begun = True
            log_start_offset = max(self._log_start_offset, self._log.log_start_offset)
            covered = self._snapshots.load(self._state, log_start_offset=log_start_offset, log_end_offset=base_offset)
            first_offset = self._snapshots.first_to_replay(self._state, self._log, covered)
            self._log.replay(self._state.replay, first_offset=first_offset, end_offset=base_offset)
        self._snapshots.take(self._state, base_offset)

    def take(self, batch: RecordBatch) -> None:
        """Remember a batch that is whole."""
        if batch.next_offset > self._log_start_offset:
            aborted = self._state.replay(batch)
            if aborted is not None:
                self._log.add_aborted(aborted)
