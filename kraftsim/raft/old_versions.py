"""Downgrades messages between replicas: the rules build the latest version, and fields that an
older version lacks are removed here.

Source: org.apache.kafka.raft.RaftUtil, the `validVersions` of the message definitions.
"""

from collections.abc import Mapping

from protocol.messages.k01_fetch import FetchRequest, FetchResponse, ReplicaState
from protocol.messages.k52_vote import VoteRequest, VoteResponse
from protocol.messages.k53_begin_quorum_epoch import BeginQuorumEpochResponse
from protocol.messages.k54_end_quorum_epoch import EndQuorumEpochResponse
from protocol.messages.k55_describe_quorum import DescribeQuorumResponse
from protocol.messages.k59_fetch_snapshot import FetchSnapshotResponse
from protocol.schema import Message
from protocol.uuids import ZERO_UUID

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
