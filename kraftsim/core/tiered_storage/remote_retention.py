"""The remote segments to delete: below the log start offset, beyond the size limit, expired, or
with unreferenced leader epochs.

Source: RemoteLogManager.RLMExpirationTask (cleanupExpiredRemoteLogSegments).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kraftsim.core.partitions.retention import Reason, RetentionRules
from kraftsim.core.tiered_storage.remote_segment import RemoteSegment, SegmentState
from kraftsim.core.tiered_storage.segment_catalogue import is_within
from protocol.disk.leader_epoch_checkpoint import EpochStart

UNREFERENCED_EPOCHS = "leader epochs that are not in the log any more"
OF_SIZE_OR_TIME = (Reason.SIZE, Reason.TIME)


@dataclass(frozen=True, slots=True)
class SegmentToDelete:
    """A segment to delete."""

    segment: RemoteSegment
    reason: str


@dataclass(frozen=True, slots=True)
class Expiry:
    """The segments to delete, oldest first, and the log start offset after that."""

    going: tuple[SegmentToDelete, ...]
    log_start_offset: int


def expired_remotely(
    segments: Iterable[RemoteSegment],
    rules: RetentionRules,
    *,
    epochs: Sequence[EpochStart],
    now_ms: int,
    log_start_offset: int,
    log_end_offset: int,
    local_only_bytes: int,
) -> Expiry:
    """Return what to delete.

    `local_only_bytes`: the size of local segments that are not in remote storage; `now_ms` is the
    wall clock.

    Incomplete copies are deleted by the same rules: that cleans up after a leader that failed while
    copying.
    """
    known = [each for each in segments if each.state is not SegmentState.DELETE_SEGMENT_FINISHED]
    ours = [each for each in known if is_within(each, log_end_offset, epochs)]
    whole = [each for each in ours if each.state is SegmentState.COPY_SEGMENT_FINISHED]
    surplus = (
        local_only_bytes + sum(each.size_bytes for each in whole) - rules.retention_bytes
        if rules.retention_bytes >= 0
        else 0
    )
    going: list[SegmentToDelete] = []
    is_leading = {Reason.SIZE: True, Reason.TIME: True}
    for each in sorted(
        ours, key=lambda each: (each.start_offset, each.end_offset, each.segment_id)
    ):
        if each.end_offset < log_start_offset:
            going.append(SegmentToDelete(each, Reason.LOG_START.value))
            surplus -= each.size_bytes if each in whole else 0
            continue
        too_much = surplus >= each.size_bytes and surplus > 0 and is_leading[Reason.SIZE]
        too_old = (
            rules.retention_ms >= 0
            and each.max_timestamp_ms <= now_ms - rules.retention_ms
            and is_leading[Reason.TIME]
        )
        if too_much or too_old:
            going.append(SegmentToDelete(each, (Reason.SIZE if too_much else Reason.TIME).value))
            log_start_offset = (
                max(log_start_offset, each.end_offset + 1) if each in whole else log_start_offset
            )
            surplus -= each.size_bytes if each in whole else 0
        else:
            is_leading = {Reason.SIZE: False, Reason.TIME: False}
    oldest_epoch = epochs[0].leader_epoch if epochs else 0
    going += [
        SegmentToDelete(each, UNREFERENCED_EPOCHS)
        for each in known
        if each.leader_epochs[-1].leader_epoch < oldest_epoch
    ]
    resumed = [
        SegmentToDelete(each, "its deletion was started")
        for each in known
        if each.state is SegmentState.DELETE_SEGMENT_STARTED
    ]
    chosen = {each.segment.segment_id for each in going}
    return Expiry(
        (*(each for each in resumed if each.segment.segment_id not in chosen), *going),
        log_start_offset,
    )
