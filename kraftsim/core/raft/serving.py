"""Responses to readers of the quorum: Fetch, FetchSnapshot and DescribeQuorum.

Without the bytes: the node adds the records to the response.
Source: org.apache.kafka.raft.KafkaRaftClient (handleFetchRequest, handleFetchSnapshotRequest,
handleDescribeQuorumRequest).
"""

from msgspec import Struct

from kraftsim.core.raft import fetch_messages, leading
from kraftsim.core.raft.leadership import ReplicaProgress
from kraftsim.core.raft.quorum import Quorum
from kraftsim.core.raft.raft_log import FORMAT_SNAPSHOT, Diverging, SnapshotId
from kraftsim.core.raft.roles import Leader
from kraftsim.core.raft.voter_set import DYNAMIC_VOTERS, ReplicaKey
from kraftsim.events.raft import HighWatermarkReported
from protocol.disk.file_names import METADATA_TOPIC
from protocol.errors import ErrorCode
from protocol.messages import k01_fetch as fetch
from protocol.messages import k55_describe_quorum as describe
from protocol.messages import k59_fetch_snapshot as snapshots
from protocol.uuids import METADATA_TOPIC_ID, ZERO_UUID

NO_LEADER = -1
UNKNOWN = -1


def refuse_fetch(quorum: Quorum, request: fetch.FetchRequest) -> fetch.FetchResponse | None:
    """Validate a Fetch in Kafka's order and return the error response; None if it is valid."""
    if request.cluster_id is not None and request.cluster_id != quorum.cluster_id:
        return fetch.FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    partition = _fetched_partition(request)
    if partition is None:
        return fetch.FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    error = _refuse_partition(quorum, request, partition)
    return None if error is ErrorCode.NONE else fetch_response(quorum, error)


def fetch_outcome(
    quorum: Quorum, request: fetch.FetchRequest, now_ms: int, wall_ms: int
) -> fetch.FetchResponse | None:
    """Compare the replica's log with this one; None if records may be read from its offset on, or
    waited for.
    """
    partition = request.topics[0].partitions[0]
    replica_key = fetch_messages.asking_replica(request)
    outcome = leading.on_fetch(
        quorum, replica_key, partition.fetch_offset, partition.last_fetched_epoch, now_ms, wall_ms
    )
    match outcome:
        case Diverging(epoch, end_offset):
            response = fetch_response(quorum, ErrorCode.NONE)
            response.responses[0].partitions[0].diverging_epoch = fetch.EpochEndOffset(
                epoch=epoch, end_offset=end_offset
            )
            return response
        case SnapshotId(end_offset, epoch):
            response = fetch_response(quorum, ErrorCode.NONE)
            response.responses[0].partitions[0].snapshot_id = fetch.SnapshotId(
                end_offset=end_offset, epoch=epoch
            )
            return response
        case _:
            return None


def fetch_response(quorum: Quorum, error: ErrorCode) -> fetch.FetchResponse:
    """Return a response without records; it has the leader and the log's offsets in any case."""
    leader_id = NO_LEADER if quorum.leader_id is None else quorum.leader_id
    high_watermark = _published_high_watermark(quorum) if error is ErrorCode.NONE else UNKNOWN
    _emit_high_watermark(quorum, high_watermark)
    data = fetch.PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=quorum.log.start_offset,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=quorum.epoch),
        aborted_transactions=[],
        records=b"",
    )
    response = fetch.FetchResponse(
        responses=[
            fetch.FetchableTopicResponse(
                topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[data]
            )
        ]
    )
    address = quorum.address_in(quorum.leader_endpoints)
    if leader_id != NO_LEADER and address is not None:
        response.node_endpoints = [
            fetch.NodeEndpoint(node_id=leader_id, host=address.host, port=address.port)
        ]
    return response


def _published_high_watermark(quorum: Quorum) -> int:
    """Return the high watermark that may be published.

    A new leader publishes none before the first record of its epoch is committed: its former value
    as a follower may be below what the last leader published, and Apache Kafka's replicas stop
    permanently when the high watermark decreases.
    """
    known = quorum.log.high_watermark
    if known is None or (
        isinstance(quorum.role, Leader) and known <= quorum.role.leadership.epoch_start_offset
    ):
        return UNKNOWN
    return known


def _emit_high_watermark(quorum: Quorum, high_watermark: int) -> None:
    if isinstance(quorum.role, Leader) and high_watermark not in (
        UNKNOWN,
        quorum.role.leadership.published_high_watermark,
    ):
        quorum.role.leadership.published_high_watermark = high_watermark
        quorum.emit(HighWatermarkReported(leader_epoch=quorum.epoch, high_watermark=high_watermark))


class SnapshotPiece(Struct, frozen=True):
    """A chunk of a snapshot to send."""

    snapshot: SnapshotId
    position: int
    max_bytes: int


def snapshot_outcome(
    quorum: Quorum, request: snapshots.FetchSnapshotRequest, now_ms: int
) -> SnapshotPiece | snapshots.FetchSnapshotResponse:
    """Return the chunk of a snapshot for a request, or an error.

    Whether the position is in the file is checked by the caller: `refused_snapshot`.
    """
    if request.cluster_id is not None and request.cluster_id != quorum.cluster_id:
        return snapshots.FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    partition_count = len(request.topics[0].partitions) if request.topics else 0
    if not partition_count or (len(request.topics) != 1 and partition_count != 1):
        return snapshots.FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
    named = (
        row
        for topic in request.topics
        if topic.name == METADATA_TOPIC
        for row in topic.partitions
        if row.partition == 0
    )
    partition = next(named, None)
    if (
        partition is None
        or partition.position < 0
        or _refuse_epoch(quorum, partition.current_leader_epoch) is not ErrorCode.NONE
    ):
        return refused_snapshot()
    wanted = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
    if wanted not in quorum.log.snapshots or wanted == FORMAT_SNAPSHOT:
        return refused_snapshot()
    leading.on_fetch_snapshot(
        quorum, ReplicaKey(request.replica_id, partition.replica_directory_id), now_ms
    )
    return SnapshotPiece(wanted, partition.position, request.max_bytes)


def refused_snapshot() -> snapshots.FetchSnapshotResponse:
    """Return the response for another partition or epoch, an unknown snapshot, or a position
    outside of it.

    Apache Kafka builds a specific error response for each of these, and fails to send it, as its
    records field is missing: the client receives this one.
    Source: measured with Apache Kafka 3.9.1 and 4.4.0.
    """
    return snapshots.FetchSnapshotResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)


def snapshot_response(
    quorum: Quorum, piece: SnapshotPiece, *, size: int, records: bytes | memoryview
) -> snapshots.FetchSnapshotResponse:
    """Return a response with a chunk of a snapshot."""
    leader_id = NO_LEADER if quorum.leader_id is None else quorum.leader_id
    answer = snapshots.PartitionSnapshot(
        index=0,
        snapshot_id=snapshots.SnapshotId(
            end_offset=piece.snapshot.end_offset, epoch=piece.snapshot.epoch
        ),
        current_leader=snapshots.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=quorum.epoch),
        size=size,
        position=piece.position,
        unaligned_records=records,
    )
    response = snapshots.FetchSnapshotResponse(
        topics=[snapshots.TopicSnapshot(name=METADATA_TOPIC, partitions=[answer])]
    )
    address = quorum.address_in(quorum.leader_endpoints)
    if leader_id != NO_LEADER and address is not None:
        response.node_endpoints = [
            snapshots.NodeEndpoint(node_id=leader_id, host=address.host, port=address.port)
        ]
    return response


def describe_quorum(
    quorum: Quorum, request: describe.DescribeQuorumRequest, now_ms: int, wall_ms: int
) -> describe.DescribeQuorumResponse:
    """Return voters, observers and their progress.

    Only the leader has them; others fail without naming the leader.
    """
    topics = []
    for topic in request.topics:
        partitions = [
            _described(quorum, topic.topic_name, partition.partition_index, now_ms, wall_ms)
            for partition in topic.partitions
        ]
        topics.append(
            describe.DescribeQuorumTopicResult(topic_name=topic.topic_name, partitions=partitions)
        )
    nodes = []
    if any(
        partition.error_code == ErrorCode.NONE for topic in topics for partition in topic.partitions
    ):
        nodes = [
            describe.DescribeQuorumNode(
                node_id=voter.key.id,
                listeners=[
                    describe.Listener(name=name, host=at.host, port=at.port)
                    for name, at in voter.endpoints.items()
                ],
            )
            for voter in quorum.voter_set.nodes
        ]
    return describe.DescribeQuorumResponse(error_message="", topics=topics, nodes=nodes)


def _described(
    quorum: Quorum, topic_name: str, index: int, now_ms: int, wall_ms: int
) -> describe.DescribeQuorumPartitionResult:
    if topic_name != METADATA_TOPIC or index != 0:
        return _undescribed(
            index,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        )
    if not isinstance(quorum.role, Leader):
        message = (
            "For requests intended only for the leader, this error indicates that the broker is "
            "not the current leader. "
        )
        message += (
            "For requests intended for any replica, this error indicates that the broker is not "
            "a replica of the topic partition."
        )
        return _undescribed(index, ErrorCode.NOT_LEADER_OR_FOLLOWER, message)
    leadership = quorum.role.leadership
    own = describe.ReplicaState(
        replica_id=quorum.own.id,
        replica_directory_id=quorum.own.directory_id if _knows_directories(quorum) else ZERO_UUID,
        log_end_offset=quorum.log.end_offset,
        last_fetch_timestamp=wall_ms,
        last_caught_up_timestamp=wall_ms,
    )
    voters = [
        _state(progress, with_directory=_knows_directories(quorum))
        for progress in leadership.followers
    ]
    if quorum.is_voter:
        voters = sorted([*voters, own], key=lambda state: state.replica_id)
    observers = [
        _state(progress, with_directory=True)
        for progress in leadership.observers(now_ms)
        if progress.key.id != quorum.own.id
    ]
    return describe.DescribeQuorumPartitionResult(
        partition_index=index,
        error_message="",
        leader_id=quorum.own.id,
        leader_epoch=quorum.epoch,
        high_watermark=_published_high_watermark(quorum),
        current_voters=voters,
        observers=observers if quorum.is_voter else [*observers, own],
    )


def _undescribed(
    index: int, error: ErrorCode, message: str
) -> describe.DescribeQuorumPartitionResult:
    return describe.DescribeQuorumPartitionResult(
        partition_index=index, error_code=error, error_message=message
    )


def _state(progress: ReplicaProgress, *, with_directory: bool) -> describe.ReplicaState:
    return describe.ReplicaState(
        replica_id=progress.key.id,
        replica_directory_id=progress.key.directory_id if with_directory else ZERO_UUID,
        log_end_offset=UNKNOWN if progress.end_offset is None else progress.end_offset,
        last_fetch_timestamp=progress.last_fetch_wall_ms,
        last_caught_up_timestamp=progress.last_caught_up_wall_ms,
    )


def _knows_directories(quorum: Quorum) -> bool:
    return quorum.voters.kraft_version >= DYNAMIC_VOTERS


def _fetched_partition(request: fetch.FetchRequest) -> fetch.FetchPartition | None:
    """Return the partition of a valid Fetch; None for any other.

    Before v13 topics have no id: None, too.
    """
    if len(request.topics) != 1 or request.topics[0].topic_id != METADATA_TOPIC_ID:
        return None
    partitions = request.topics[0].partitions
    return partitions[0] if len(partitions) == 1 and partitions[0].partition == 0 else None


def _refuse_partition(
    quorum: Quorum, request: fetch.FetchRequest, partition: fetch.FetchPartition
) -> ErrorCode:
    is_sensible = (
        request.max_wait_ms >= 0
        and partition.fetch_offset >= 0
        and partition.last_fetched_epoch >= 0
    )
    if not is_sensible or partition.last_fetched_epoch > partition.current_leader_epoch:
        return ErrorCode.INVALID_REQUEST
    return _refuse_epoch(quorum, partition.current_leader_epoch)


def _refuse_epoch(quorum: Quorum, epoch: int) -> ErrorCode:
    """Compare the epoch of a request to the leader with this replica's."""
    if epoch != quorum.epoch:
        return (
            ErrorCode.FENCED_LEADER_EPOCH
            if epoch < quorum.epoch
            else ErrorCode.UNKNOWN_LEADER_EPOCH
        )
    if not isinstance(quorum.role, Leader):
        return (
            ErrorCode.BROKER_NOT_AVAILABLE
            if quorum.is_stopping
            else ErrorCode.NOT_LEADER_OR_FOLLOWER
        )
    return ErrorCode.NONE
