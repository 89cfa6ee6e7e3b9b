"""The requests and responses of log replication, built from a replica's state and parsed into plain
values.

Source: org.apache.kafka.raft.{RaftUtil, KafkaRaftClient}, KIP-595, KIP-630, KIP-853.
"""

from kraftsim.core.raft.epoch_answers import EpochAnswer, error_of, leader_endpoints
from kraftsim.core.raft.quorum import Quorum
from kraftsim.core.raft.raft_log import Diverging, LogEnd, SnapshotId
from kraftsim.core.raft.roles import SnapshotFetch
from kraftsim.core.raft.settings import MAX_FETCH_WAIT_MS
from kraftsim.core.raft.voter_set import ReplicaKey
from protocol.disk.file_names import METADATA_TOPIC
from protocol.messages import k01_fetch as fetch
from protocol.messages import k59_fetch_snapshot as snapshots
from protocol.schema import Message
from protocol.uuids import METADATA_TOPIC_ID

FULL_FETCH_SESSION_EPOCH = -1
"""FetchMetadata.FINAL_EPOCH: no session."""


class FetchAnswer(EpochAnswer, frozen=True, kw_only=True):
    """A Fetch response; without an error it has one of three results."""

    diverging: Diverging | None
    snapshot: SnapshotId | None
    records: bytes | memoryview
    high_watermark: int
    """-1 if the leader does not know it."""


class SnapshotAnswer(EpochAnswer, frozen=True, kw_only=True):
    """A chunk of a snapshot."""

    snapshot: SnapshotId
    position: int
    size: int
    records: bytes | memoryview


def fetch_request(quorum: Quorum) -> fetch.FetchRequest:
    """Build a Fetch from the end of this log."""
    log_end = quorum.log.end
    partition = fetch.FetchPartition(
        partition=0,
        current_leader_epoch=quorum.epoch,
        fetch_offset=log_end.offset,
        last_fetched_epoch=log_end.epoch,
        partition_max_bytes=0,
        replica_directory_id=quorum.own.directory_id,
    )
    return fetch.FetchRequest(
        cluster_id=quorum.cluster_id,
        replica_state=fetch.ReplicaState(replica_id=quorum.own.id),
        max_wait_ms=MAX_FETCH_WAIT_MS,
        min_bytes=0,
        max_bytes=quorum.settings.fetch_max_bytes,
        session_epoch=FULL_FETCH_SESSION_EPOCH,
        topics=[
            fetch.FetchTopic(
                topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
            )
        ],
    )


def asking_replica(request: fetch.FetchRequest) -> ReplicaKey:
    """Return the replica that sent a request; a negative id is a tool or a consumer."""
    replica_id = (
        request.replica_state.replica_id
        if request.replica_state.replica_id >= 0
        else request.replica_id
    )
    return ReplicaKey(replica_id, request.topics[0].partitions[0].replica_directory_id)


def asked_end(request: Message) -> LogEnd:
    """Return the log end in a Fetch request."""
    assert isinstance(request, fetch.FetchRequest), "the request is a Fetch"
    partition = request.topics[0].partitions[0]
    return LogEnd(partition.last_fetched_epoch, partition.fetch_offset)


def fetch_answer(quorum: Quorum, response: fetch.FetchResponse) -> FetchAnswer | None:
    """Parse a response; None if the whole request failed or there is no partition."""
    if response.error_code or not response.responses or not response.responses[0].partitions:
        return None
    data = response.responses[0].partitions[0]
    leader = data.current_leader
    return FetchAnswer(
        error=error_of(data.error_code),
        leader_epoch=leader.leader_epoch,
        leader_id=None if leader.leader_id < 0 else leader.leader_id,
        endpoints=leader_endpoints(quorum, leader.leader_id, response.node_endpoints),
        diverging=Diverging(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
        if data.diverging_epoch.epoch >= 0
        else None,
        snapshot=SnapshotId(data.snapshot_id.end_offset, data.snapshot_id.epoch)
        if data.snapshot_id.epoch >= 0
        else None,
        records=data.records if data.records is not None else b"",
        high_watermark=data.high_watermark,
    )


def fetch_snapshot_request(quorum: Quorum, wanted: SnapshotFetch) -> snapshots.FetchSnapshotRequest:
    """Build a request for the next chunk of a snapshot."""
    partition = snapshots.FetchPartitionSnapshot(
        partition=0,
        current_leader_epoch=quorum.epoch,
        snapshot_id=snapshots.SnapshotId(
            end_offset=wanted.snapshot.end_offset, epoch=wanted.snapshot.epoch
        ),
        position=wanted.position,
        replica_directory_id=quorum.own.directory_id,
    )
    return snapshots.FetchSnapshotRequest(
        cluster_id=quorum.cluster_id,
        replica_id=quorum.own.id,
        max_bytes=quorum.settings.fetch_snapshot_max_bytes,
        topics=[snapshots.FetchTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
    )


def fetch_snapshot_answer(
    quorum: Quorum, response: snapshots.FetchSnapshotResponse
) -> SnapshotAnswer | None:
    """Parse a response; None if the whole request failed, as for every error of the partition:
    `serving.refused_snapshot`.
    """
    if response.error_code or not response.topics or not response.topics[0].partitions:
        return None
    data = response.topics[0].partitions[0]
    leader = data.current_leader
    return SnapshotAnswer(
        error=error_of(data.error_code),
        leader_epoch=leader.leader_epoch,
        leader_id=None if leader.leader_id < 0 else leader.leader_id,
        endpoints=leader_endpoints(quorum, leader.leader_id, response.node_endpoints),
        snapshot=SnapshotId(data.snapshot_id.end_offset, data.snapshot_id.epoch),
        position=data.position,
        size=data.size,
        records=data.unaligned_records if data.unaligned_records is not None else b"",
    )
