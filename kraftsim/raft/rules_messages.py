"""The messages between replicas: requests and responses built from a replica's state, and parsed
into plain values.

All have the fields of the latest version; encoding for an older version drops what it lacks, as in
Kafka (last section).
Source: org.apache.kafka.raft.{RaftUtil, KafkaRaftClient}, KIP-595, KIP-630, KIP-853, KIP-996.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from kraftsim.raft.events import LaterEpochAnswered, OtherClusterAnswered
from kraftsim.raft.rules_log import DivergingEpoch, LogEnd, SnapshotId
from kraftsim.raft.rules_quorum import FatalQuorumError, Quorum
from kraftsim.raft.rules_roles import SnapshotFetch
from kraftsim.raft.rules_settings import MAX_FETCH_WAIT_MS
from kraftsim.raft.rules_voters import Address, Endpoints, ReplicaKey, VoterNode
from protocol.errors import ErrorCode
from protocol.messages import k01_fetch as fetch
from protocol.messages import k52_vote as vote
from protocol.messages import k53_begin_quorum_epoch as begin
from protocol.messages import k54_end_quorum_epoch as end
from protocol.messages import k59_fetch_snapshot as snapshots
from protocol.messages import k82_update_raft_voter as update
from protocol.messages.k01_fetch import FetchRequest, FetchResponse, ReplicaState
from protocol.messages.k52_vote import VoteRequest, VoteResponse
from protocol.messages.k53_begin_quorum_epoch import BeginQuorumEpochResponse
from protocol.messages.k54_end_quorum_epoch import EndQuorumEpochResponse
from protocol.messages.k55_describe_quorum import DescribeQuorumResponse
from protocol.messages.k59_fetch_snapshot import FetchSnapshotResponse
from protocol.schema import Message
from protocol.storage.file_names import METADATA_TOPIC
from protocol.uuids import METADATA_TOPIC_ID, ZERO_UUID

NO_LEADER = -1
EPOCH_ERRORS = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
PASSING_ERRORS = (
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_VOTER_KEY,
    ErrorCode.INCONSISTENT_VOTER_SET,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNSUPPORTED_VERSION,
)
"""Errors without epoch information: retry later."""
ERRORS: Final = {int(error): error for error in ErrorCode}


# --------------------------------------------------------------------------------------------------
# The epoch and leader in every response, and their handling
#
# Source: KafkaRaftClient (maybeHandleCommonResponse, handleTopLevelError).


class EpochAnswer(Struct, frozen=True, kw_only=True):
    """The common fields of all responses."""

    error: ErrorCode
    leader_epoch: int
    leader_id: int | None
    endpoints: Endpoints


class _Endpoint(Protocol):
    node_id: int
    host: str
    port: int


def error_of(error_code: int) -> ErrorCode:
    """Return the error of a code; an unknown code is UNKNOWN_SERVER_ERROR."""
    return ERRORS.get(error_code, ErrorCode.UNKNOWN_SERVER_ERROR)


def leader_endpoints(quorum: Quorum, leader_id: int, nodes: Iterable[_Endpoint]) -> Endpoints:
    """Return the leader's endpoints in a response; empty if there are none."""
    for node in nodes:
        if node.node_id == leader_id and node.port:
            return {quorum.listener: Address(node.host, node.port)}
    return {}


def emit_other_cluster(quorum: Quorum, node_id: int, error_code: int) -> None:
    """Emit an event when a node refuses the cluster id of this replica for the first time."""
    if error_code == ErrorCode.INCONSISTENT_CLUSTER_ID and quorum.is_first_refusal_by(node_id):
        own_id = quorum.cluster_id
        quorum.emit(
            OtherClusterAnswered(
                asked_node_id=node_id, own_cluster_id=own_id, error_code=error_code
            )
        )


def is_settled_by_epoch(quorum: Quorum, node_id: int, answer: EpochAnswer, now_ms: int) -> bool:
    """Handle the epoch and error of a response, and return whether nothing else is to be done.

    Raises FatalQuorumError for an invalid state.
    """
    if answer.error in PASSING_ERRORS:
        emit_other_cluster(quorum, node_id, answer.error)
        quorum.peers.back_off(node_id, now_ms)
        return True
    if answer.leader_epoch < quorum.epoch or answer.error is ErrorCode.UNKNOWN_LEADER_EPOCH:
        quorum.peers.back_off(node_id, now_ms)
        return True
    if answer.leader_epoch > quorum.epoch:
        epochs = {"asked_epoch": quorum.epoch, "leader_epoch": answer.leader_epoch}
        quorum.emit(LaterEpochAnswered(asked_node_id=node_id, error_code=answer.error, **epochs))
    is_elsewhere = answer.leader_epoch > quorum.epoch or answer.error in EPOCH_ERRORS
    quorum.see_epoch(answer.leader_epoch, answer.leader_id, answer.endpoints, now_ms)
    if answer.error is ErrorCode.INVALID_REQUEST:
        raise FatalQuorumError(f"node {node_id} rejected a request of this replica as invalid")
    if is_elsewhere:
        quorum.peers.back_off(node_id, now_ms)
    return is_elsewhere


# --------------------------------------------------------------------------------------------------
# Log replication: Fetch and FetchSnapshot

FULL_FETCH_SESSION_EPOCH = -1
"""FetchMetadata.FINAL_EPOCH: no session."""


class FetchAnswer(EpochAnswer, frozen=True, kw_only=True):
    """A Fetch response; without an error it has one of three results."""

    diverging: DivergingEpoch | None
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
    log = quorum.log
    partition = fetch.FetchPartition(
        partition=0,
        current_leader_epoch=quorum.epoch,
        fetch_offset=log.end_offset,
        last_fetched_epoch=log.last_epoch,
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
        diverging=DivergingEpoch(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
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
    `rules_serving.refused_snapshot`.
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


# --------------------------------------------------------------------------------------------------
# Elections and voters: Vote, BeginQuorumEpoch, EndQuorumEpoch, UpdateRaftVoter

ANY_VOTER: Final = -1


class _Topic(Protocol):
    @property
    def topic_name(self) -> str: ...


class VoteInput(Struct, frozen=True, kw_only=True):
    """A Vote request."""

    epoch: int
    candidate: ReplicaKey
    asked: ReplicaKey | None
    """The replica key that the candidate sent the request to; None if not included."""
    log_end: LogEnd
    is_pre_vote: bool

    def is_for_another(self, own: ReplicaKey) -> bool:
        """Return whether the request is for another replica."""
        return self.asked is not None and not self.asked.is_same_as(own)


class VoteAnswer(EpochAnswer, frozen=True, kw_only=True):
    """A Vote response."""

    is_granted: bool


class LeaderNotice(Struct, frozen=True, kw_only=True):
    """A BeginQuorumEpoch or EndQuorumEpoch request; the latter with preferred successors."""

    epoch: int
    leader_id: int
    endpoints: Endpoints
    asked: ReplicaKey | None = None
    successors: tuple[ReplicaKey, ...] = ()

    def is_for_another(self, own: ReplicaKey) -> bool:
        """Return whether the request is for another replica."""
        return self.asked is not None and not self.asked.is_same_as(own)


def vote_request(quorum: Quorum, voter: VoterNode, *, is_pre_vote: bool) -> vote.VoteRequest:
    """Build a vote or pre-vote request."""
    log_end = quorum.log.end
    partition = vote.VotePartition(
        partition_index=0,
        replica_epoch=quorum.epoch,
        replica_id=quorum.own.id,
        replica_directory_id=quorum.own.directory_id,
        voter_directory_id=voter.key.directory_id,
        last_offset_epoch=log_end.epoch,
        last_offset=log_end.offset,
        pre_vote=is_pre_vote,
    )
    return vote.VoteRequest(
        cluster_id=quorum.cluster_id,
        voter_id=voter.key.id,
        topics=[vote.VoteTopic(topic_name=METADATA_TOPIC, partitions=[partition])],
    )


def refuse_vote(quorum: Quorum, request: vote.VoteRequest) -> vote.VoteResponse | None:
    """Return the error response for another cluster or partition, or None."""
    error = _refuse_shape(
        quorum,
        request.cluster_id,
        [(topic, [part.partition_index for part in topic.partitions]) for topic in request.topics],
    )
    return None if error is ErrorCode.NONE else vote.VoteResponse(error_code=error)


def parse_vote(request: vote.VoteRequest) -> VoteInput:
    """Parse a request."""
    partition = request.topics[0].partitions[0]
    return VoteInput(
        epoch=partition.replica_epoch,
        candidate=ReplicaKey(partition.replica_id, partition.replica_directory_id),
        asked=_asked(request.voter_id, partition.voter_directory_id),
        log_end=LogEnd(partition.last_offset_epoch, partition.last_offset),
        is_pre_vote=partition.pre_vote,
    )


def vote_response(quorum: Quorum, error: ErrorCode, *, is_granted: bool) -> vote.VoteResponse:
    """Build a response."""
    partition = vote.VotePartitionResult(
        partition_index=0,
        error_code=error,
        leader_id=_leader_id(quorum),
        leader_epoch=quorum.epoch,
        vote_granted=is_granted,
    )
    return vote.VoteResponse(
        topics=[vote.VoteTopicResult(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=[
            vote.NodeEndpoint(node_id=node_id, host=host, port=port)
            for node_id, host, port in _leader_endpoint(quorum)
        ],
    )


def vote_answer(quorum: Quorum, response: vote.VoteResponse) -> VoteAnswer:
    """Parse a response."""
    partition = _only(topic.partitions for topic in response.topics) or vote.VotePartitionResult(
        leader_id=NO_LEADER, leader_epoch=quorum.epoch
    )
    return VoteAnswer(
        error=error_of(response.error_code or partition.error_code),
        leader_epoch=partition.leader_epoch,
        leader_id=_known(partition.leader_id),
        endpoints=leader_endpoints(quorum, partition.leader_id, response.node_endpoints),
        is_granted=partition.vote_granted,
    )


def begin_epoch_request(quorum: Quorum, voter: VoterNode) -> begin.BeginQuorumEpochRequest:
    """Build a BeginQuorumEpoch request."""
    partition = begin.BeginQuorumPartition(
        partition_index=0,
        voter_directory_id=voter.key.directory_id,
        leader_id=quorum.own.id,
        leader_epoch=quorum.epoch,
    )
    return begin.BeginQuorumEpochRequest(
        cluster_id=quorum.cluster_id,
        voter_id=voter.key.id,
        topics=[begin.BeginQuorumTopic(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[
            begin.LeaderEndpoint(name=name, host=at.host, port=at.port)
            for name, at in quorum.own_endpoints.items()
        ],
    )


def refuse_begin_epoch(
    quorum: Quorum, request: begin.BeginQuorumEpochRequest
) -> begin.BeginQuorumEpochResponse | None:
    """Return the error response for another cluster or partition, or None."""
    error = _refuse_shape(
        quorum,
        request.cluster_id,
        [(topic, [part.partition_index for part in topic.partitions]) for topic in request.topics],
    )
    return None if error is ErrorCode.NONE else begin.BeginQuorumEpochResponse(error_code=error)


def parse_begin_epoch(request: begin.BeginQuorumEpochRequest) -> LeaderNotice:
    """Parse a request."""
    partition = request.topics[0].partitions[0]
    return LeaderNotice(
        epoch=partition.leader_epoch,
        leader_id=partition.leader_id,
        endpoints={
            endpoint.name: Address(endpoint.host, endpoint.port)
            for endpoint in request.leader_endpoints
        },
        asked=_asked(request.voter_id, partition.voter_directory_id),
    )


def begin_epoch_response(quorum: Quorum, error: ErrorCode) -> begin.BeginQuorumEpochResponse:
    """Build a response."""
    partition = begin.BeginQuorumPartitionResult(
        partition_index=0, error_code=error, leader_id=_leader_id(quorum), leader_epoch=quorum.epoch
    )
    return begin.BeginQuorumEpochResponse(
        topics=[begin.BeginQuorumTopicResult(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=[
            begin.NodeEndpoint(node_id=node_id, host=host, port=port)
            for node_id, host, port in _leader_endpoint(quorum)
        ],
    )


def begin_epoch_answer(quorum: Quorum, response: begin.BeginQuorumEpochResponse) -> EpochAnswer:
    """Parse a response."""
    partition = _only(
        topic.partitions for topic in response.topics
    ) or begin.BeginQuorumPartitionResult(leader_id=NO_LEADER, leader_epoch=quorum.epoch)
    return EpochAnswer(
        error=error_of(response.error_code or partition.error_code),
        leader_epoch=partition.leader_epoch,
        leader_id=_known(partition.leader_id),
        endpoints=leader_endpoints(quorum, partition.leader_id, response.node_endpoints),
    )


def end_epoch_request(
    quorum: Quorum, successors: Sequence[ReplicaKey]
) -> end.EndQuorumEpochRequest:
    """Build an EndQuorumEpoch request, with the preferred successors."""
    partition = end.EndQuorumPartition(
        partition_index=0,
        leader_id=quorum.own.id,
        leader_epoch=quorum.epoch,
        preferred_successors=[key.id for key in successors],
        preferred_candidates=[
            end.PreferredCandidate(candidate_id=key.id, candidate_directory_id=key.directory_id)
            for key in successors
        ],
    )
    return end.EndQuorumEpochRequest(
        cluster_id=quorum.cluster_id,
        topics=[end.EndQuorumTopic(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[
            end.LeaderEndpoint(name=name, host=at.host, port=at.port)
            for name, at in quorum.own_endpoints.items()
        ],
    )


def refuse_end_epoch(
    quorum: Quorum, request: end.EndQuorumEpochRequest
) -> end.EndQuorumEpochResponse | None:
    """Return the error response for another cluster or partition, or None."""
    error = _refuse_shape(
        quorum,
        request.cluster_id,
        [(topic, [part.partition_index for part in topic.partitions]) for topic in request.topics],
    )
    return None if error is ErrorCode.NONE else end.EndQuorumEpochResponse(error_code=error)


def parse_end_epoch(request: end.EndQuorumEpochRequest) -> LeaderNotice:
    """Parse a request of either version."""
    partition = request.topics[0].partitions[0]
    successors = [
        ReplicaKey(one.candidate_id, one.candidate_directory_id)
        for one in partition.preferred_candidates
    ]
    return LeaderNotice(
        epoch=partition.leader_epoch,
        leader_id=partition.leader_id,
        endpoints={
            endpoint.name: Address(endpoint.host, endpoint.port)
            for endpoint in request.leader_endpoints
        },
        successors=tuple(
            successors or [ReplicaKey(voter_id) for voter_id in partition.preferred_successors]
        ),
    )


def end_epoch_response(quorum: Quorum, error: ErrorCode) -> end.EndQuorumEpochResponse:
    """Build a response."""
    partition = end.EndQuorumPartitionResult(
        partition_index=0, error_code=error, leader_id=_leader_id(quorum), leader_epoch=quorum.epoch
    )
    return end.EndQuorumEpochResponse(
        topics=[end.EndQuorumTopicResult(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=[
            end.NodeEndpoint(node_id=node_id, host=host, port=port)
            for node_id, host, port in _leader_endpoint(quorum)
        ],
    )


def end_epoch_answer(quorum: Quorum, response: end.EndQuorumEpochResponse) -> EpochAnswer:
    """Parse a response."""
    partition = _only(
        topic.partitions for topic in response.topics
    ) or end.EndQuorumPartitionResult(leader_id=NO_LEADER, leader_epoch=quorum.epoch)
    return EpochAnswer(
        error=error_of(response.error_code or partition.error_code),
        leader_epoch=partition.leader_epoch,
        leader_id=_known(partition.leader_id),
        endpoints=leader_endpoints(quorum, partition.leader_id, response.node_endpoints),
    )


def update_voter_request(
    quorum: Quorum, kraft_versions: tuple[int, int]
) -> update.UpdateRaftVoterRequest:
    """Build an UpdateRaftVoter request for this voter."""
    return update.UpdateRaftVoterRequest(
        cluster_id=quorum.cluster_id,
        current_leader_epoch=quorum.epoch,
        voter_id=quorum.own.id,
        voter_directory_id=quorum.own.directory_id,
        listeners=[
            update.Listener(name=name, host=at.host, port=at.port)
            for name, at in quorum.own_endpoints.items()
        ],
        k_raft_version_feature=update.KRaftVersionFeature(
            min_supported_version=kraft_versions[0], max_supported_version=kraft_versions[1]
        ),
    )


def update_voter_response(quorum: Quorum, error: ErrorCode) -> update.UpdateRaftVoterResponse:
    """Build a response."""
    leader = update.CurrentLeader(leader_id=_leader_id(quorum), leader_epoch=quorum.epoch)
    for _, host, port in _leader_endpoint(quorum):
        leader.host, leader.port = host, port
    return update.UpdateRaftVoterResponse(error_code=error, current_leader=leader)


def update_voter_answer(quorum: Quorum, response: update.UpdateRaftVoterResponse) -> EpochAnswer:
    """Parse a response."""
    leader = response.current_leader
    return EpochAnswer(
        error=error_of(response.error_code),
        leader_epoch=leader.leader_epoch,
        leader_id=_known(leader.leader_id),
        endpoints={quorum.listener: Address(leader.host, leader.port)} if leader.port else {},
    )


T = TypeVar("T")


def _only(partitions: Iterable[Sequence[T]]) -> T | None:
    """Return the only partition of a response; None if the whole request failed."""
    return next((part for parts in partitions for part in parts), None)


def _known(leader_id: int) -> int | None:
    return None if leader_id < 0 else leader_id


def _leader_id(quorum: Quorum) -> int:
    return NO_LEADER if quorum.leader_id is None else quorum.leader_id


def _leader_endpoint(quorum: Quorum) -> list[tuple[int, str, int]]:
    """Return the leader with its address on the controller listener; empty if unknown."""
    address = quorum.address_in(quorum.leader_endpoints)
    return (
        []
        if quorum.leader_id is None or address is None
        else [(quorum.leader_id, address.host, address.port)]
    )


def _asked(voter_id: int, directory_id: bytes) -> ReplicaKey | None:
    return None if voter_id == ANY_VOTER else ReplicaKey(voter_id, directory_id)


def _refuse_shape(
    quorum: Quorum, cluster_id: str | None, topics: Sequence[tuple[_Topic, list[int]]]
) -> ErrorCode:
    if cluster_id is not None and cluster_id != quorum.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    is_metadata = (
        len(topics) == 1 and topics[0][0].topic_name == METADATA_TOPIC and topics[0][1] == [0]
    )
    return ErrorCode.NONE if is_metadata else ErrorCode.INVALID_REQUEST


# --------------------------------------------------------------------------------------------------
# Downgrades messages between replicas: the rules build the latest version, and fields that an
# older version lacks are removed here
#
# Source: org.apache.kafka.raft.RaftUtil, the `validVersions` of the message definitions.

FIRST_FETCH_WITH_REPLICA_STATE = 15
FIRST_VOTE_WITH_PRE_VOTE = 2
FIRST_DESCRIBED_WITH_DIRECTORIES = 2
FIRST_WITH_NODE_ENDPOINTS: Mapping[type, int] = {
    FetchResponse: 17,
    VoteResponse: 1,
    BeginQuorumEpochResponse: 1,
    EndQuorumEpochResponse: 1,
    FetchSnapshotResponse: 1,
}
"""Fetch has the field since version 16; a quorum sets it since version 17."""


def is_unknown_pre_vote(body: Message, version: int) -> bool:
    """Return whether a request is a pre-vote in a version that does not support pre-votes."""
    return (
        isinstance(body, VoteRequest)
        and version < FIRST_VOTE_WITH_PRE_VOTE
        and any(part.pre_vote for topic in body.topics for part in topic.partitions)
    )


def fitted_request(body: Message, version: int) -> Message:
    """Return a request in the form of a version."""
    if isinstance(body, FetchRequest) and version < FIRST_FETCH_WITH_REPLICA_STATE:
        body.replica_id = body.replica_state.replica_id
        body.replica_state = ReplicaState()
    return body


def fitted_response(body: Message, version: int) -> Message:
    """Return a response in the form of a version."""
    first = FIRST_WITH_NODE_ENDPOINTS.get(type(body))
    if first is not None and version < first:
        body.node_endpoints = []
    if isinstance(body, DescribeQuorumResponse) and version < FIRST_DESCRIBED_WITH_DIRECTORIES:
        body.nodes = []
        for partition in (partition for topic in body.topics for partition in topic.partitions):
            for replica in (*partition.current_voters, *partition.observers):
                replica.replica_directory_id = ZERO_UUID
    return body
