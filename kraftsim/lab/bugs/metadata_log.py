"""Bugs of the metadata log: its quorum, its high watermark, and its snapshots.

A controller may commit only what a majority has on disk, and what it wrote itself in its own epoch;
after a restart it may not lead an epoch whose records it may have lost. A snapshot must equal the
log up to the offset in its name: replicas that are far behind never see the records themselves.
"""

from kraftsim.lab.bugs.bug import Bug
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.metadata.rules_registries import MetadataRecord
from kraftsim.raft.rules_log import RaftLog, SnapshotId
from kraftsim.raft.rules_quorum import Quorum
from kraftsim.raft.rules_roles import Candidate, Leadership, Role
from kraftsim.raft.snapshotting import Snapshotting
from protocol.metadata.controller import ProducerIdsRecord
from protocol.records.batches import RecordBatch

KAFKA_10527 = Bug(
    name="KAFKA-10527",
    title="a restarted leader resumes its epoch without the records that it lost",
    about="""A controller that was the leader before a crash resumes leadership of the same
        epoch after the restart.

        What it had written and not flushed is lost, followers may have fetched it, and now it
        writes other records at the same offsets of the same epoch. The epochs do not reveal the
        difference, and the logs diverge for ever.

        Source: KAFKA-10527, fixed by starting as a resigned leader, which needs a new epoch
        (org.apache.kafka.raft.QuorumState.initialize).
        """,
    fixed_in=("2.7.0",),
    swap=lambda parts: parts.replacing(quorum=ResumesLeading),
    scenario="quorum_under_faults",
    caught_by=(
        "quorum-state-restored",
        "metadata-log-matching",
        "high-watermark-monotonic",
        "no-truncation-below-high-watermark",
    ),
)


class ResumesLeading(Quorum):
    """Assumes that the former majority still holds."""

    def _role_after_leading(self, epoch: int, now_ms: int) -> Role:
        candidate = Candidate(epoch=epoch, election_at_ms=self.election_timeout(now_ms))
        for voter_id in self.voter_set.ids:
            candidate.canvass.grant(voter_id)
        return candidate  # right: Resigned


KAFKA_10533 = Bug(
    name="KAFKA-10533",
    title="the metadata log's high watermark passes records that are not flushed",
    about="""The leader of the metadata log counts its own copy of a record before it is
        flushed.

        A broker's AllocateProducerIds is answered as soon as the record is written. If the
        controller loses power before the flush, the record is gone, and the next
        AllocateProducerIds allocates the same block again: two producers share an id, and the
        batches of one are treated as retries of the other.

        Source: KAFKA-10533, fixed by flushing before the high watermark advances
        (org.apache.kafka.raft.KafkaRaftClient).
        """,
    fixed_in=("2.8.0",),
    swap=lambda parts: parts.replacing(leadership=CountsUnflushed),
    scenario="quorum_under_faults",
    caught_by=(
        "high-watermark-flushed",
        "producer-id-blocks-disjoint",
        "producer-id-unique",
        "next-producer-id-monotonic",
    ),
)


class CountsUnflushed(Leadership):
    """Treats written records as durable."""

    def _counted_end_offset(self, log: RaftLog) -> int:
        return log.end_offset  # right: what is flushed


KAFKA_12619 = Bug(
    name="KAFKA-12619",
    title="a new leader commits records of previous epochs without one of its own",
    about="""A new leader commits records of previous epochs as soon as a majority has them,
        before a record of its own epoch is committed.

        Such a record can still be lost: a controller with a later epoch in its log wins the next
        election without having the record, and the replicas that have it truncate it. It takes
        three elections in a row with two leaders that could not replicate what they wrote: figure 8
        of the Raft paper.

        Source: KAFKA-12619, fixed by requiring the LeaderChange record of the epoch itself
        (org.apache.kafka.raft.LeaderState.maybeUpdateHighWatermark).
        """,
    fixed_in=("2.8.0", "3.0.0"),
    swap=lambda parts: parts.replacing(leadership=CountsFormerEpochs),
    scenario="quorum_under_faults",
    caught_by=(
        "leader-completeness",
        "no-truncation-below-high-watermark",
        "producer-id-blocks-disjoint",
    ),
)


class CountsFormerEpochs(Leadership):
    """Advances the high watermark below the first record of its own epoch."""

    def _covers_own_epoch(self, high_watermark: int) -> bool:
        return high_watermark >= self.epoch_start_offset  # right: >


KAFKA_13357 = Bug(
    name="KAFKA-13357",
    title="a snapshot without the record of producer id blocks",
    about="""Snapshots of the metadata log lack the record of the last block of producer ids.

        A controller that loads one, because its log is lost or lags behind, has no record of any
        allocated block: as leader it allocates from the first id.

        Source: KAFKA-13357, org.apache.kafka.image.MetadataDelta, which replayed everything but
        ProducerIdsRecord.
        """,
    fixed_in=("3.2.0",),
    swap=lambda parts: parts.replacing(metadata_image=WithoutProducerIds),
    scenario="quorum_under_faults",
    caught_by=("snapshot-equals-log", "producer-id-blocks-disjoint", "next-producer-id-monotonic"),
)


class WithoutProducerIds(MetadataImage):
    """Does not contain blocks of producer ids."""

    def _apply(self, record: MetadataRecord) -> None:
        if not isinstance(record, ProducerIdsRecord):  # right: every record
            super()._apply(record)


KAFKA_14618 = Bug(
    name="KAFKA-14618",
    title="a snapshot named after its last offset",
    about="""A snapshot is named after the last offset that it contains, instead of the first
        one that it does not contain.

        A node that loads it replays the last record a second time from the log.

        Source: KAFKA-14618, org.apache.kafka.image.MetadataProvenance.snapshotId.
        """,
    fixed_in=("3.4.0", "3.5.0"),
    swap=lambda parts: parts.replacing(snapshotting=NamesLastOffset),
    scenario="quorum_under_faults",
    caught_by=("snapshot-equals-log", "nodes-believe-the-truth", "metadata-log-matching"),
)


class NamesLastOffset(Snapshotting):
    """Confuses the inclusive with the exclusive end offset."""

    def _id_behind(self, last: RecordBatch) -> SnapshotId:
        return SnapshotId(last.last_offset, last.partition_leader_epoch)  # right: last.next_offset


BUGS = (
    KAFKA_10527,
    KAFKA_10533,
    KAFKA_12619,
    KAFKA_13357,
    KAFKA_14618,
)
