"""Handling of a missing producer snapshot: when a segment is copied, and when a follower starts
after it.

Brokers before 2.8 kept snapshots of about two segments, and later ones never write those of older
segments again. Apache Kafka cannot copy such a segment, and so no later one. Each other remedy here
was proposed or rejected for that problem (see docs/tiered-storage.md).
Source: KAFKA-15195, KAFKA-16209, RemoteLogManager.copyLogSegment, KIP-405.
"""

from collections.abc import Mapping
from enum import Enum
from typing import ClassVar, Final


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
