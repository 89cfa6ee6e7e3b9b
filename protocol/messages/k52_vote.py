"""Vote (52): a controller without a known leader asks the other voters of the metadata log to elect
it.

A majority of the voters elects the leader of an epoch, and each of them grants one vote per epoch,
so there is at most one. v2 first asks whether an election could be won at all (pre-vote), so that a
node that was partitioned does not force the quorum into a new epoch when it reconnects.
Source: KIP-595, KIP-853 (v1: directory ids), KIP-996 (v2: pre-vote); VoteRequest.json,
VoteResponse.json; KafkaRaftClient.
"""

from protocol.errors import ErrorCode
from protocol.schema import (
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    string,
    structure,
    uint16,
    uuid,
)

ANY_VOTER = -1  # the sender does not name the intended voter
NO_LEADER = -1

ERRORS = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_REQUEST,  # another partition, or offsets and epochs that cannot be
    ErrorCode.FENCED_LEADER_EPOCH,  # the election is over: the receiver is in a later epoch
    ErrorCode.INCONSISTENT_VOTER_SET,  # sender or receiver is no voter, up to 3.7
    # of the whole request, as is INVALID_REQUEST for another partition
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.INVALID_VOTER_KEY,  # v1: meant for another node, or for another disk of this one
)


@structure(kafka_name="PartitionData")
class VotePartition:
    """The candidacy: the sender, the epoch, and the end of its log.

    replica_epoch is the epoch to be won, one above the last one that the candidate knew; in a
    pre-vote it is the current epoch of the sender. last_offset is the end of its log (one past the
    last record), last_offset_epoch the epoch of that last record (0 if there is none). A vote is
    granted only to a log that is not behind the voter's own: the epoch of the last record decides,
    then the end. v1 adds the directory ids of both sides; one of zeros is not compared. Up to 3.9
    the sender's three fields were called candidate_*.
    """

    partition_index: int = int32()
    replica_epoch: int = int32()
    replica_id: int = int32()
    replica_directory_id: bytes = uuid(since=1, ignorable=True)
    voter_directory_id: bytes = uuid(since=1, ignorable=True)
    last_offset_epoch: int = int32()
    last_offset: int = int64()
    pre_vote: bool = boolean(since=2)


@structure(kafka_name="TopicData")
class VoteTopic:
    """Always partition 0 of __cluster_metadata."""

    topic_name: str = string()
    partitions: list[VotePartition] = array(VotePartition)


@message(key=52, versions="0-2", flexible="0+")
class VoteRequest:
    """One per voter and election.

    The receiver adopts a higher epoch even if it rejects the vote, and its vote is flushed before
    it responds.

    Granted by a voter that in this epoch has neither a leader nor voted for another. For a pre-vote
    (v2) nothing is written, an earlier vote does not count, and only a leader and voters that have
    fetched from one in this epoch reject it; a higher epoch is adopted, too. A null cluster id is
    not checked. v1 adds the voter that the sender intends to reach.
    """

    cluster_id: str | None = string(nullable="0+", default=None)
    voter_id: int = int32(since=1, default=ANY_VOTER, ignorable=True)
    topics: list[VoteTopic] = array(VoteTopic)


@structure(kafka_name="PartitionData")
class VotePartitionResult:
    """The vote, and in any case, errors included, the receiver's epoch and leader (-1: unknown)."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    vote_granted: bool = boolean()


@structure(kafka_name="TopicData")
class VoteTopicResult:
    """Always partition 0 of __cluster_metadata; no topics with a top-level error."""

    topic_name: str = string()
    partitions: list[VotePartitionResult] = array(VotePartitionResult)


@structure
class NodeEndpoint:
    """An endpoint of the leader named above, for the listener of the request."""

    node_id: int = int32(since=1)
    host: str = string(since=1)
    port: int = uint16(since=1)


@message(key=52, versions="0-2", flexible="0+")
class VoteResponse:
    """v1 adds the leader's endpoint, empty if no leader is known."""

    error_code: int = int16()
    topics: list[VoteTopicResult] = array(VoteTopicResult)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, tag=0, tagged="1+")
