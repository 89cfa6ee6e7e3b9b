"""What is done where the producer snapshot of a segment is missing: when the segment is copied, and when a follower begins behind it.

Brokers before 2.8 kept snapshots of about two segments, and later ones never write those of older segments again. Apache Kafka cannot copy such a
segment, and so none that is younger. Each other remedy here was proposed, or rejected, by whoever wanted to change that (see docs/tiered-storage.md).
Source: KAFKA-15195, KAFKA-16209, RemoteLogManager.copyLogSegment, KIP-405.
"""

from collections.abc import Mapping
from enum import Enum
from typing import ClassVar, Final


class AtArchive(Enum):
    """What becomes of a segment without a snapshot behind it."""

    FAIL = "it cannot be copied, and none behind it"
    WRITE_EMPTY = "it gets one that names nobody"
    REPLAY_LOCALLY = "it gets the one that it should have: the local log up to there is read for it"
    HOLD = "nothing is copied until none is without one any more"
    LEAVE_OUT = "it is copied without one"


class AtRebuild(Enum):
    """What a follower does behind a remote segment that has no snapshot."""

    REQUIRE = "it cannot begin there"
    REPLAY_YOUNGER = "it reads the remote segments in which a producer wrote that has not expired"
    REPLAY_ALL = "it reads all remote segments"
    BEGIN_EMPTY = "it begins without producers"


class SnapshotRemedy:
    """Since 3.7.1: the copy is announced, and then fails, at each attempt anew."""

    name: ClassVar[str] = "shipped"
    announces_before_looking: ClassVar[bool] = True
    archives_snapshots: ClassVar[bool] = True
    at_archive: ClassVar[AtArchive] = AtArchive.FAIL
    at_rebuild: ClassVar[AtRebuild] = AtRebuild.REQUIRE
    refuses_topics: ClassVar[bool] = False
    """Whether a topic cannot be tiered as long as a segment of it is without a snapshot."""
    promises_equal_state: ClassVar[bool] = True
    """Whether a follower that begins behind a remote segment knows whom the leader knew there."""


class LooksFirst(SnapshotRemedy):
    """3.6.0 to 3.7.0: the copy fails before it is announced."""

    name = "shipped-before-3.7.1"
    announces_before_looking = False


class EmptyAtArchive(SnapshotRemedy):
    """The proposal: the leader writes an empty snapshot beside its log and copies it."""

    name = "empty-at-archive"
    at_archive = AtArchive.WRITE_EMPTY
    promises_equal_state = False


class ReplayYounger(SnapshotRemedy):
    """The ideal one: followers read what producer.id.expiration.ms has not made irrelevant."""

    name = "replay-younger"
    at_archive = AtArchive.LEAVE_OUT
    at_rebuild = AtRebuild.REPLAY_YOUNGER


class ReplayBeforeUpload(SnapshotRemedy):
    """Rejected first: the leader makes the right snapshot before it copies the segment."""

    name = "replay-before-upload"
    at_archive = AtArchive.REPLAY_LOCALLY


class HoldUploads(SnapshotRemedy):
    """Rejected second: nothing is copied until every segment without a snapshot has expired."""

    name = "hold-uploads"
    at_archive = AtArchive.HOLD


class RefuseTopics(SnapshotRemedy):
    """Rejected third: the topic cannot be tiered before every segment has a snapshot."""

    name = "refuse-topics"
    refuses_topics = True


class NoSnapshots(SnapshotRemedy):
    """Rejected fourth: snapshots are not copied at all, and followers read the whole remote log."""

    name = "no-snapshots"
    archives_snapshots = False
    at_archive = AtArchive.LEAVE_OUT
    at_rebuild = AtRebuild.REPLAY_ALL


class EmptyOnRead(SnapshotRemedy):
    """Rejected fifth: segments are copied as they are, and a follower takes a missing snapshot for an empty one."""

    name = "empty-on-read"
    at_archive = AtArchive.LEAVE_OUT
    at_rebuild = AtRebuild.BEGIN_EMPTY
    promises_equal_state = False


REMEDIES: Final[Mapping[str, type[SnapshotRemedy]]] = {
    remedy.name: remedy
    for remedy in (
        SnapshotRemedy,
        LooksFirst,
        EmptyAtArchive,
        ReplayYounger,
        ReplayBeforeUpload,
        HoldUploads,
        RefuseTopics,
        NoSnapshots,
        EmptyOnRead,
    )
}
"""By the name that `kraftsim.tiering.remedy` gives them."""
