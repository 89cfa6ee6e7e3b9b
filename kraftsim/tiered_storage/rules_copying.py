"""What a leader copies to remote storage and what it deletes there; and the remedies for a missing
producer snapshot.

Source: RemoteLogManager.{RLMCopyTask (candidateLogSegments, copyLogSegment,
findHighestRemoteOffset), RLMExpirationTask (cleanupExpiredRemoteLogSegments)}.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import ClassVar, Final

from kraftsim.partitions.rules_log import Reason, RetentionRules, Segment
from kraftsim.partitions.rules_replica_log import NO_REMOTE_OFFSET
from kraftsim.tiered_storage.rules_segments import (
    RemoteSegment,
    SegmentCatalogue,
    SegmentState,
    is_within,
)
from protocol.storage.text_files import EpochStart

# --------------------------------------------------------------------------------------------------
# The segments to copy next, and their metadata
#
# The active segment is not copied, nor segments above the last stable offset. The oldest is first;
# if it cannot be copied, no later one is.


@dataclass(frozen=True, slots=True)
class CopyCandidate:
    """A segment to copy; its records end before next_offset."""

    segment: Segment
    next_offset: int


def candidates(
    segments: Sequence[Segment],
    *,
    remote_end_offset: int,
    log_start_offset: int,
    last_stable_offset: int,
) -> list[CopyCandidate]:
    """Return the segments to copy, oldest first.

    `remote_end_offset` is the highest offset in remote storage.
    """
    first_offset = max(remote_end_offset + 1, log_start_offset)
    return [
        CopyCandidate(segment, following.base_offset)
        for segment, following in pairwise(segments)
        if following.base_offset > first_offset and following.base_offset <= last_stable_offset
    ]


def epochs_within(
    epochs: Sequence[EpochStart], first_offset: int, next_offset: int
) -> tuple[EpochStart, ...]:
    """Return the epochs of the records from first_offset up to next_offset (exclusive), the first
    one starting at first_offset.
    """
    earlier = [each for each in epochs if each.start_offset <= first_offset]
    inside = [each for each in epochs if first_offset < each.start_offset < next_offset]
    return (*(EpochStart(each.leader_epoch, first_offset) for each in earlier[-1:]), *inside)


def epochs_before(epochs: Sequence[EpochStart], next_offset: int) -> tuple[EpochStart, ...]:
    """Return the epochs in the leader epoch checkpoint of a remote segment: all that start before
    its end.
    """
    return tuple(each for each in epochs if each.start_offset < next_offset)


def highest_remote_offset(
    catalogue: SegmentCatalogue, epochs: Sequence[EpochStart], log_end_offset: int
) -> int:
    """Return the highest remote offset of the log, by its own epochs, latest first;
    NO_REMOTE_OFFSET if there is none.
    """
    end_offset = log_end_offset
    for each in reversed(epochs):
        highest = catalogue.highest_offset(each.leader_epoch)
        if highest is not None and highest >= each.start_offset:
            return min(highest, end_offset - 1)
        end_offset = each.start_offset
    return NO_REMOTE_OFFSET


# --------------------------------------------------------------------------------------------------
# A missing producer snapshot: when a segment is copied, and when a follower starts after it
#
# Brokers before 2.8 kept snapshots of about two segments, and later ones never write those of older
# segments again. Apache Kafka cannot copy such a segment, and so no later one. Each other remedy
# here was proposed or rejected for that problem (see docs/tiered-storage.md).
# Source: KAFKA-15195, KAFKA-16209, RemoteLogManager.copyLogSegment, KIP-405.


class MissingAtUpload(Enum):
    """The handling of a segment without a snapshot at its end."""

    FAIL = "neither it nor later segments can be copied"
    WRITE_EMPTY = "it gets an empty one"
    REPLAY_LOCALLY = "it gets the one that it should have: the local log up to there is read for it"
    HOLD = "nothing is copied until every segment has one"
    LEAVE_OUT = "it is copied without one"


class MissingAtRebuild(Enum):
    """What a follower does after a remote segment without a snapshot."""

    REQUIRE = "it cannot begin there"
    REPLAY_YOUNGER = "it reads the remote segments in which a producer wrote that has not expired"
    REPLAY_ALL = "it reads all remote segments"
    BEGIN_EMPTY = "it begins without producers"


class SnapshotRemedy:
    """Since 3.7.1: the copy is started, and then fails, at each attempt."""

    name: ClassVar[str] = "shipped"
    announces_before_looking: ClassVar[bool] = True
    archives_snapshots: ClassVar[bool] = True
    at_archive: ClassVar[MissingAtUpload] = MissingAtUpload.FAIL
    at_rebuild: ClassVar[MissingAtRebuild] = MissingAtRebuild.REQUIRE
    refuses_topics: ClassVar[bool] = False
    """Whether a topic cannot be tiered while a segment has no snapshot."""
    promises_equal_state: ClassVar[bool] = True
    """Whether a follower that starts after a remote segment knows the producers that the leader
    knew there.
    """


class ChecksSnapshotFirst(SnapshotRemedy):
    """3.6.0 to 3.7.0: the copy fails before it is started."""

    name = "shipped-before-3.7.1"
    announces_before_looking = False


class EmptyAtArchive(SnapshotRemedy):
    """The proposal: the leader writes an empty snapshot to its log and copies it."""

    name = "empty-at-archive"
    at_archive = MissingAtUpload.WRITE_EMPTY
    promises_equal_state = False


class ReplayYounger(SnapshotRemedy):
    """The ideal: followers read the records within producer.id.expiration.ms."""

    name = "replay-younger"
    at_archive = MissingAtUpload.LEAVE_OUT
    at_rebuild = MissingAtRebuild.REPLAY_YOUNGER


class ReplayBeforeUpload(SnapshotRemedy):
    """Rejected first: the leader creates the correct snapshot before it copies the segment."""

    name = "replay-before-upload"
    at_archive = MissingAtUpload.REPLAY_LOCALLY


class HoldUploads(SnapshotRemedy):
    """Rejected second: nothing is copied until every segment without a snapshot has expired."""

    name = "hold-uploads"
    at_archive = MissingAtUpload.HOLD


class RefuseTopics(SnapshotRemedy):
    """Rejected third: the topic cannot be tiered before every segment has a snapshot."""

    name = "refuse-topics"
    refuses_topics = True


class NoSnapshots(SnapshotRemedy):
    """Rejected fourth: snapshots are not copied at all, and followers read the whole remote log."""

    name = "no-snapshots"
    archives_snapshots = False
    at_archive = MissingAtUpload.LEAVE_OUT
    at_rebuild = MissingAtRebuild.REPLAY_ALL


class EmptyOnRead(SnapshotRemedy):
    """Rejected fifth: segments are copied as they are, and a follower treats a missing snapshot as
    an empty one.
    """

    name = "empty-on-read"
    at_archive = MissingAtUpload.LEAVE_OUT
    at_rebuild = MissingAtRebuild.BEGIN_EMPTY
    promises_equal_state = False


REMEDIES: Final[Mapping[str, type[SnapshotRemedy]]] = {
    remedy.name: remedy
    for remedy in (
        SnapshotRemedy,
        ChecksSnapshotFirst,
        EmptyAtArchive,
        ReplayYounger,
        ReplayBeforeUpload,
        HoldUploads,
        RefuseTopics,
        NoSnapshots,
        EmptyOnRead,
    )
}
"""By the value of `kraftsim.tiering.remedy`."""


# --------------------------------------------------------------------------------------------------
# The segments to delete: below the log start offset, beyond the size limit, expired, or with
# unreferenced leader epochs

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
