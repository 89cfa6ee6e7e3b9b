"""Operations on a dynamic quorum, as an operator has them: describe the voters, add a voter, remove
a voter.

One request, one attempt: the leader may fail before the change is committed, or after it without an
answer.
Source: KIP-853, KIP-836, org.apache.kafka.tools.MetadataQuorumCommand (`kafka-metadata-quorum
describe`, `add-controller`, `remove-controller`).
"""

from dataclasses import dataclass

from kraftsim.cluster.spec import CONTROLLER_LISTENER, ClusterSpec, NodeSpec
from kraftsim.server.outbound import PeerConnection
from protocol.errors import ErrorCode
from protocol.messages.k55_describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
)
from protocol.messages.k80_add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from protocol.messages.k81_remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from protocol.schema import Message

METADATA_TOPIC = "__cluster_metadata"
CLIENT_ID = "kraftsim-voters"
DESCRIBE_MS = 500
CHANGE_MS = 2000
ANSWER_MS = 3000
"""A change is answered when it is committed, or has timed out."""


@dataclass(frozen=True, slots=True)
class DescribedQuorum:
    """The voters as the leader of the highest epoch reports them: directory ids by node id."""

    leader: NodeSpec
    leader_epoch: int
    voters: dict[int, bytes]
    observers: dict[int, bytes]


async def voters_of(spec: ClusterSpec, *, host_is_name: bool = False) -> tuple[str, ...] | None:
    """Return the names of the voters, as the leader reports them; None if no controller answers as
    leader.
    """
    described = await _described(_controllers(spec, host_is_name))
    if described is None:
        return None
    return tuple(
        node.name for node in _controllers(spec, host_is_name) if node.node_id in described.voters
    )


async def change_voter(
    spec: ClusterSpec, name: str, *, joins: bool, host_is_name: bool = False
) -> bool:
    """Ask the leader once to add or remove a controller as voter; return whether the answer is that
    this is committed.
    """
    described = await _described(_controllers(spec, host_is_name))
    if described is None:
        return False
    node = spec.node(name, host_is_name=host_is_name)
    known = described.observers if joins else described.voters
    if node.node_id not in known:
        return False
    request: Message
    if joins:
        listener = Listener(name=CONTROLLER_LISTENER, host=node.host, port=node.port)
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=CHANGE_MS,
            voter_id=node.node_id,
            voter_directory_id=known[node.node_id],
            listeners=[listener],
        )
    else:
        request = RemoveRaftVoterRequest(
            cluster_id=None, voter_id=node.node_id, voter_directory_id=known[node.node_id]
        )
    answer = await _asked(described.leader, request, ANSWER_MS)
    return (
        isinstance(answer, AddRaftVoterResponse | RemoveRaftVoterResponse)
        and answer.error_code == ErrorCode.NONE
    )


def _controllers(spec: ClusterSpec, host_is_name: bool) -> list[NodeSpec]:
    return [spec.node(name, host_is_name=host_is_name) for name in spec.controller_names]


async def _described(controllers: list[NodeSpec]) -> DescribedQuorum | None:
    """Ask every controller.

    A deposed leader that has not noticed has a lower epoch than the present one.
    """
    found: DescribedQuorum | None = None
    request = DescribeQuorumRequest(
        topics=[
            DescribeQuorumTopic(
                topic_name=METADATA_TOPIC, partitions=[DescribeQuorumPartition(partition_index=0)]
            )
        ]
    )
    for node in controllers:
        answer = await _asked(node, request, DESCRIBE_MS)
        if not isinstance(answer, DescribeQuorumResponse) or not answer.topics:
            continue
        quorum = answer.topics[0].partitions[0]
        if quorum.error_code == ErrorCode.NONE and (
            found is None or quorum.leader_epoch > found.leader_epoch
        ):
            voters = {each.replica_id: each.replica_directory_id for each in quorum.current_voters}
            observers = {each.replica_id: each.replica_directory_id for each in quorum.observers}
            found = DescribedQuorum(node, quorum.leader_epoch, voters, observers)
    return found


async def _asked(node: NodeSpec, request: Message, timeout_ms: int) -> Message | None:
    """Return the answer of a node, bypassing any proxy; None if there is none."""
    connection = PeerConnection(node.listens_host, node.listens_port, client_id=CLIENT_ID)
    try:
        await connection.connect(timeout_ms=DESCRIBE_MS)
        return await connection.request(request, timeout_ms=timeout_ms)
    except OSError:
        return None
    finally:
        connection.close()
