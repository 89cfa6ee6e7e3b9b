"""Opening the log of a partition: first what is in it, then what it says of its producers.

After a clean stop both are told by small files; what was written since the last flush before a crash is looked at batch by batch.

Source: LogLoader (load, recoverLog), UnifiedLog.rebuildProducerState.
"""

from kraftsim.core.producer_state.manager import ProducerStateManager
from kraftsim.node.log import PartitionLog
from kraftsim.node.producer_snapshots import ProducerSnapshots
from kraftsim.world.interface import World


def recover_partition(
    world: World, log: PartitionLog, state: ProducerStateManager, *, recovery_point: int | None, log_start_offset: int
) -> ProducerSnapshots:
    """Recover a log and its empty producer state; the snapshots of the log come back.

    `recovery_point`: everything before it is on disk; None after a clean stop. `log_start_offset`: where the log began, as far as that is known.
    """
    snapshots = ProducerSnapshots(world, log.directory)
    had_none = not snapshots.offsets
    log.recover(lambda batch: None, verify_from_offset=recovery_point)
    log.begin_at(min(log_start_offset, log.log_end_offset))
    snapshots.remove_strays(log.base_offsets)
    if had_none and recovery_point is None:
        snapshots.begin_empty(state, log)
    else:
        snapshots.rebuild(state, log)
    return snapshots
