"""What a replica serves: Fetch, FetchSnapshot and DescribeQuorum, and the dynamic changes of the
voter set.

Without the bytes: the node adds the records to the response.
Source: org.apache.kafka.raft.KafkaRaftClient (handleFetchRequest, handleFetchSnapshotRequest,
handleDescribeQuorumRequest), internals.{AddVoterHandler, RemoveVoterHandler, UpdateVoterHandler};
KIP-595, KIP-630, KIP-853.
"""

from dataclasses import dataclass

from msgspec import Struct

from kraftsim.raft import rules_leading, rules_messages
from kraftsim.raft.events import HighWatermarkReported
from kraftsim.raft.rules_effects import Reply
from kraftsim.raft.rules_log import FORMAT_SNAPSHOT, DivergingEpoch, SnapshotId
from kraftsim.raft.rules_quorum import Quorum
from kraftsim.raft.rules_roles import NEVER, Leader, Leadership, ReplicaProgress
from kraftsim.raft.rules_settings import NEW_VOTER_FETCH_MS
from kraftsim.raft.rules_voters import DYNAMIC_VOTERS, Address, ReplicaKey, VoterNode
from protocol.errors import ErrorCode
from protocol.messages import k01_fetch as fetch
from protocol.messages import k55_describe_quorum as describe
from protocol.messages import k59_fetch_snapshot as snapshots
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.k80_add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from protocol.messages.k81_remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from protocol.messages.k82_update_raft_voter import UpdateRaftVoterRequest
from protocol.schema import Message
from protocol.storage.file_names import METADATA_TOPIC
from protocol.uuids import METADATA_TOPIC_ID, ZERO_UUID

NO_LEADER = -1
UNKNOWN = -1


# --------------------------------------------------------------------------------------------------
# Fetch, FetchSnapshot and DescribeQuorum


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
    replica_key = rules_messages.asking_replica(request)
    outcome = rules_leading.on_fetch(
        quorum, replica_key, partition.fetch_offset, partition.last_fetched_epoch, now_ms, wall_ms
    )
    match outcome:
        case DivergingEpoch(epoch, end_offset):
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
    rules_leading.on_fetch_snapshot(
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


# --------------------------------------------------------------------------------------------------
# Dynamic changes of the voter set: add, remove or update a voter; one change at a time
#
# A change is allowed once the leader has committed a record of its own epoch and the former change
# is committed: then any majority of the old voters overlaps any majority of the new ones.

KRAFT_VERSION_FEATURE = "kraft.version"
Refused = tuple[ErrorCode, str]


@dataclass(slots=True, kw_only=True)
class _Addition:
    """A voter being added: ApiVersions sent, then appended, then committed."""

    voter: VoterNode
    ticket: object
    until_ms: int
    asked: int | None
    acks_at_append: bool
    offset: int | None = None


@dataclass(slots=True, kw_only=True)
class _Removal:
    """A voter being removed: appended, then committed."""

    ticket: object
    until_ms: int
    offset: int


class VoterChanges:
    """The pending change of a leader."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        self._addition: _Addition | None = None
        self._removal: _Removal | None = None

    def is_waiting_for(self, number: int) -> bool:
        """Return whether a request is the ApiVersions request to the new voter."""
        return self._addition is not None and self._addition.asked == number

    def on_add(self, request: AddRaftVoterRequest, ticket: object, now_ms: int) -> None:
        """Start adding a voter, or fail."""
        voter = VoterNode(
            key=ReplicaKey(request.voter_id, request.voter_directory_id),
            endpoints={
                listener.name: Address(listener.host, listener.port)
                for listener in request.listeners
            },
        )
        refused = self._refuse_any(request.cluster_id, voter.key)
        if refused is None and self._quorum.listener not in voter.endpoints:
            refused = (
                ErrorCode.INVALID_REQUEST,
                (
                    f"the voter has no address for listener {self._quorum.listener}, only for "
                    f"{list(voter.endpoints)}"
                ),
            )
        refused = refused or self._refuse_now()
        if refused is None and self._quorum.voter_set.node(voter.key.id) is not None:
            refused = (
                ErrorCode.DUPLICATE_VOTER,
                f"node {voter.key.id} is one of the voters {_voter_ids(self._quorum)}",
            )
        if refused is None and not self._quorum.peers.is_ready(voter.key.id, now_ms):
            refused = ErrorCode.REQUEST_TIMED_OUT, f"node {voter.key.id} cannot be asked right now"
        if refused is not None:
            self._quorum.effects.append(
                Reply(ticket, AddRaftVoterResponse(error_code=refused[0], error_message=refused[1]))
            )
            return
        send = self._quorum.peers.send(
            voter.key.id, voter.endpoints[self._quorum.listener], ApiVersionsRequest()
        )
        self._addition = _Addition(
            voter=voter,
            ticket=ticket,
            until_ms=now_ms + request.timeout_ms,
            asked=send.number,
            acks_at_append=not request.ack_when_committed,
        )
        self._quorum.effects.append(send)

    def on_voter_answered(self, number: int, response: Message, now_ms: int) -> None:
        """The new voter's ApiVersions response: append the voter set if it supports the
        kraft.version.
        """
        addition = self._addition
        assert addition is not None and addition.asked == number, "ApiVersions was sent"
        addition.asked = None
        assert isinstance(response, ApiVersionsResponse), "the response is for ApiVersions"
        refused = self._refuse_newcomer(addition, response, now_ms)
        if refused is not None:
            self._end_addition(*refused)
            return
        versions = _kraft_versions(response)
        assert versions is not None, "checked above"
        addition.voter = VoterNode(
            key=addition.voter.key, endpoints=addition.voter.endpoints, kraft_versions=versions
        )
        addition.offset = rules_leading.append_voters(
            self._quorum, self._quorum.voter_set.with_voter(addition.voter)
        )
        if addition.acks_at_append:
            self._end_addition(ErrorCode.NONE, None)

    def on_voter_failed(self, number: int, now_ms: int) -> None:
        """The new voter did not respond."""
        addition = self._addition
        assert addition is not None and addition.asked == number and now_ms >= 0, (
            "ApiVersions was sent"
        )
        addition.asked = None
        self._end_addition(
            ErrorCode.REQUEST_TIMED_OUT,
            f"node {addition.voter.key.id} did not say what it supports",
        )

    def on_remove(self, request: RemoveRaftVoterRequest, ticket: object, now_ms: int) -> None:
        """Start removing a voter, or fail."""
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        refused = self._refuse_any(request.cluster_id, key) or self._refuse_now()
        voters = self._quorum.voter_set
        if refused is None and (not voters.includes(key) or len(voters) == 1):
            refused = (
                ErrorCode.VOTER_NOT_FOUND,
                (
                    f"node {key.id} with this directory cannot leave the voters "
                    f"{_voter_ids(self._quorum)}"
                ),
            )
        if refused is not None:
            self._quorum.effects.append(
                Reply(
                    ticket, RemoveRaftVoterResponse(error_code=refused[0], error_message=refused[1])
                )
            )
            return
        offset = rules_leading.append_voters(self._quorum, voters.without_voter(key))
        self._removal = _Removal(
            ticket=ticket, until_ms=now_ms + self._quorum.settings.request_timeout_ms, offset=offset
        )

    def on_update(self, request: UpdateRaftVoterRequest, ticket: object, now_ms: int) -> None:
        """Update a voter, or fail; answered as soon as it is appended."""
        quorum = self._quorum
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        error = self._refuse_update(request, key)
        if error is ErrorCode.NONE and quorum.voters.kraft_version >= DYNAMIC_VOTERS:
            feature = request.k_raft_version_feature
            voter = VoterNode(
                key=key,
                endpoints={
                    listener.name: Address(listener.host, listener.port)
                    for listener in request.listeners
                },
                kraft_versions=(feature.min_supported_version, feature.max_supported_version),
            )
            if quorum.voter_set.node(key.id) != voter:
                rules_leading.append_voters(quorum, quorum.voter_set.with_updated(voter))
        quorum.effects.append(Reply(ticket, rules_messages.update_voter_response(quorum, error)))

    def on_leadership_lost(self) -> None:
        """Fail the pending request: this node is not leader any more; the change may or may not be
        committed.
        """
        self._end_addition(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the quorum any more"
        )
        self._end_removal(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the quorum any more"
        )

    def poll(self, now_ms: int) -> int:
        """Answer pending requests whose change is committed, or that have timed out; return the
        next poll time.
        """
        if self._addition is None and self._removal is None:
            return NEVER
        committed = self._quorum.log.high_watermark or 0
        if (
            self._addition is not None
            and self._addition.offset is not None
            and self._addition.offset < committed
        ):
            self._end_addition(ErrorCode.NONE, None)
        if self._removal is not None and self._removal.offset < committed:
            self._end_removal(ErrorCode.NONE, None)
        if not isinstance(self._quorum.role, Leader):
            self.on_leadership_lost()
        if self._addition is not None and now_ms >= self._addition.until_ms:
            self._end_addition(ErrorCode.REQUEST_TIMED_OUT, "the change was not committed in time")
        if self._removal is not None and now_ms >= self._removal.until_ms:
            self._end_removal(ErrorCode.REQUEST_TIMED_OUT, "the change was not committed in time")
        pending = [
            change.until_ms for change in (self._addition, self._removal) if change is not None
        ]
        return min(pending, default=NEVER)

    def _end_addition(self, error: ErrorCode, message: str | None) -> None:
        addition, self._addition = self._addition, None
        if addition is not None:
            self._quorum.effects.append(
                Reply(
                    addition.ticket, AddRaftVoterResponse(error_code=error, error_message=message)
                )
            )

    def _end_removal(self, error: ErrorCode, message: str | None) -> None:
        removal, self._removal = self._removal, None
        if removal is not None:
            self._quorum.effects.append(
                Reply(
                    removal.ticket, RemoveRaftVoterResponse(error_code=error, error_message=message)
                )
            )

    def _refuse_any(self, cluster_id: str | None, key: ReplicaKey) -> Refused | None:
        """Return the error of a request that is invalid for any leader."""
        if cluster_id is not None and cluster_id != self._quorum.cluster_id:
            return (
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"this is cluster {self._quorum.cluster_id}, not {cluster_id}",
            )
        if not isinstance(self._quorum.role, Leader):
            return (
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "this node does not lead the quorum",
            )
        if key.id < 0 or key.directory_id == ZERO_UUID:
            return ErrorCode.INVALID_REQUEST, "a voter has an id and a directory id"
        return None

    def _refuse_now(self) -> Refused | None:
        """Return the error of a request that this leader cannot handle yet."""
        voters, committed = self._quorum.voters, self._quorum.log.high_watermark
        leadership = self._leadership()
        if self._addition is not None or self._removal is not None:
            return ErrorCode.REQUEST_TIMED_OUT, "another change of the voters is under way"
        if committed is None or committed <= leadership.epoch_start_offset:
            return (
                ErrorCode.REQUEST_TIMED_OUT,
                "the leader has not committed anything of its epoch yet",
            )
        if voters.kraft_version < DYNAMIC_VOTERS:
            return (
                ErrorCode.UNSUPPORTED_VERSION,
                f"the voters stand in the configuration: kraft.version is {voters.kraft_version}",
            )
        if voters.latest_offset is None or voters.latest_offset >= committed:
            return (
                ErrorCode.REQUEST_TIMED_OUT,
                f"the last change of the voters, at {voters.latest_offset}, is not committed",
            )
        return None

    def _refuse_newcomer(
        self, addition: _Addition, response: ApiVersionsResponse, now_ms: int
    ) -> Refused | None:
        if response.error_code != ErrorCode.NONE:
            return (
                ErrorCode.REQUEST_TIMED_OUT,
                f"node {addition.voter.key.id} does not say what it supports",
            )
        supported = _kraft_versions(response)
        in_force = self._quorum.voters.kraft_version
        if supported is None or not supported[0] <= in_force <= supported[1]:
            return (
                ErrorCode.INVALID_REQUEST,
                f"node {addition.voter.key.id} does not support kraft.version {in_force}",
            )
        progress = self._leadership().progress_of(addition.voter.key)
        is_recent = (
            progress is not None
            and progress.last_fetch_ms is not None
            and now_ms - progress.last_fetch_ms < NEW_VOTER_FETCH_MS
        )
        if progress is None or not is_recent or progress.last_caught_up_wall_ms < 0:
            return ErrorCode.REQUEST_TIMED_OUT, f"node {addition.voter.key.id} has not caught up"
        return None

    def _refuse_update(self, request: UpdateRaftVoterRequest, key: ReplicaKey) -> ErrorCode:
        quorum = self._quorum
        if request.cluster_id is not None and request.cluster_id != quorum.cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if request.current_leader_epoch != quorum.epoch:
            return (
                ErrorCode.FENCED_LEADER_EPOCH
                if request.current_leader_epoch < quorum.epoch
                else ErrorCode.UNKNOWN_LEADER_EPOCH
            )
        if not isinstance(quorum.role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        feature = request.k_raft_version_feature
        is_covered = (
            feature.min_supported_version
            <= quorum.voters.kraft_version
            <= feature.max_supported_version
        )
        if (
            key.id < 0
            or all(listener.name != quorum.listener for listener in request.listeners)
            or not is_covered
        ):
            return ErrorCode.INVALID_REQUEST
        refused = None if quorum.voters.kraft_version < DYNAMIC_VOTERS else self._refuse_now()
        if refused is not None:
            return refused[0]
        return ErrorCode.NONE if quorum.voter_set.includes(key) else ErrorCode.VOTER_NOT_FOUND

    def _leadership(self) -> Leadership:
        assert isinstance(self._quorum.role, Leader), "only called on a leader"
        return self._quorum.role.leadership


def _kraft_versions(response: ApiVersionsResponse) -> tuple[int, int] | None:
    """Return the kraft.version range of a node; None if it has none."""
    found = next(
        (
            feature
            for feature in response.supported_features
            if feature.name == KRAFT_VERSION_FEATURE
        ),
        None,
    )
    return None if found is None else (found.min_version, found.max_version)


def _voter_ids(quorum: Quorum) -> str:
    return ", ".join(map(str, quorum.voter_set.ids))
