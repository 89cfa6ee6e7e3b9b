"""The requests and responses of leader elections, built from a replica's state and parsed into
plain values.

All requests have the fields of the latest version; encoding for an older version drops what it
lacks, as in Kafka.
Source: org.apache.kafka.raft.{RaftUtil, KafkaRaftClient}, KIP-595, KIP-853, KIP-996.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from kraftsim.core.raft.epoch_answers import NO_LEADER, EpochAnswer, error_of, leader_endpoints
from kraftsim.core.raft.quorum import Quorum
from kraftsim.core.raft.raft_log import LogEnd
from kraftsim.core.raft.voter_set import Address, Endpoints, ReplicaKey, VoterNode
from protocol.disk.file_names import METADATA_TOPIC
from protocol.errors import ErrorCode
from protocol.messages import k52_vote as vote
from protocol.messages import k53_begin_quorum_epoch as begin
from protocol.messages import k54_end_quorum_epoch as end
from protocol.messages import k82_update_raft_voter as update

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
