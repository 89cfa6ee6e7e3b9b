"""The epoch and leader in every response between replicas, and their handling.

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
"""Errors without epoch information: retry later."""
ERRORS: Final = {int(error): error for error in ErrorCode}


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
