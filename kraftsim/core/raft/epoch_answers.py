"""What every answer between replicas says of the epoch and its leader, and what follows from that alone.

Source: org.apache.kafka.raft.KafkaRaftClient (maybeHandleCommonResponse, handleTopLevelError).
"""

from collections.abc import Iterable
from typing import Final, Protocol

from msgspec import Struct

from kraftsim.core.raft.quorum import FatalQuorumError, Quorum
from kraftsim.core.raft.voter_set import Address, Endpoints
from kraftsim.events.raft import LaterEpochAnswered, OtherClusterAnswered
from protocol.errors import ErrorCode

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
"""Answers that say nothing of the epoch: ask again later."""
ERRORS: Final = {int(error): error for error in ErrorCode}


class EpochAnswer(Struct, frozen=True, kw_only=True):
    """The part that all answers have."""

    error: ErrorCode
    leader_epoch: int
    leader_id: int | None
    endpoints: Endpoints


class _Endpoint(Protocol):
    node_id: int
    host: str
    port: int


def error_of(error_code: int) -> ErrorCode:
    """Return the error of a number; one that came after us is an unknown one."""
    return ERRORS.get(error_code, ErrorCode.UNKNOWN_SERVER_ERROR)


def leader_endpoints(quorum: Quorum, leader_id: int, nodes: Iterable[_Endpoint]) -> Endpoints:
    """Return where an answer says that the leader is reached; empty if it does not say."""
    for node in nodes:
        if node.node_id == leader_id and node.port:
            return {quorum.listener: Address(node.host, node.port)}
    return {}


def note_other_cluster(quorum: Quorum, node_id: int, error_code: int) -> None:
    """Emit an event when a node refuses the cluster id of this replica for the first time."""
    if error_code == ErrorCode.INCONSISTENT_CLUSTER_ID and quorum.is_first_refusal_by(node_id):
        own_id = quorum.cluster_id
        quorum.note(OtherClusterAnswered(asked_node_id=node_id, own_cluster_id=own_id, error_code=error_code))


def is_settled_by_epoch(quorum: Quorum, node_id: int, answer: EpochAnswer, now_ms: int) -> bool:
    """Follow what an answer says of the epoch, and tell whether that was all there is in it. Raises FatalQuorumError for what cannot be."""
    if answer.error in PASSING_ERRORS:
        note_other_cluster(quorum, node_id, answer.error)
        quorum.peers.back_off(node_id, now_ms)
        return True
    if answer.leader_epoch < quorum.epoch or answer.error is ErrorCode.UNKNOWN_LEADER_EPOCH:
        quorum.peers.back_off(node_id, now_ms)
        return True
    if answer.leader_epoch > quorum.epoch:
        epochs = {"asked_epoch": quorum.epoch, "leader_epoch": answer.leader_epoch}
        quorum.note(LaterEpochAnswered(asked_node_id=node_id, error_code=answer.error, **epochs))
    is_elsewhere = answer.leader_epoch > quorum.epoch or answer.error in EPOCH_ERRORS
    quorum.see_epoch(answer.leader_epoch, answer.leader_id, answer.endpoints, now_ms)
    if answer.error is ErrorCode.INVALID_REQUEST:
        raise FatalQuorumError(f"node {node_id} finds a request of this replica invalid")
    if is_elsewhere:
        quorum.peers.back_off(node_id, now_ms)
    return is_elsewhere
