"""Requests that a quorum replica rejects by its rules alone, whatever node runs it.

Source: KIP-595, KIP-630, KafkaRaftClient.
"""

import pytest

from kraftsim.raft import rules_elections, rules_serving
from kraftsim.raft.rules_effects import Reply
from kraftsim.raft.rules_log import FORMAT_SNAPSHOT, SnapshotId
from kraftsim.raft.rules_quorum import Quorum
from protocol.errors import ErrorCode
from protocol.messages.k52_vote import VotePartition, VoteRequest, VoteResponse, VoteTopic
from protocol.messages.k59_fetch_snapshot import (
    FetchPartitionSnapshot,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    FetchTopicSnapshot,
)
from protocol.messages.k59_fetch_snapshot import SnapshotId as AskedSnapshot
from tests.core.quorum_harness import Harness

OWN, LEADER, CANDIDATE = 2, 1, 3
METADATA = "__cluster_metadata"
SNAPSHOT = SnapshotId(40, 3)
EPOCH = 5


def voter() -> Quorum:
    """One of three voters, with timeouts far in the future."""
    harness = Harness(1)
    harness.nodes[OWN].start()
    replica = harness.nodes[OWN].replica
    assert replica is not None
    return replica.quorum


@pytest.mark.parametrize(("leader_id", "is_granted"), [(None, True), (LEADER, False)])
def test_voter_that_knows_the_leader_of_an_epoch_rejects_its_vote_requests(
    leader_id: int | None, is_granted: bool
) -> None:
    """It cannot reach that leader any more, but the epoch has one
    (UnattachedState.canGrantVote).
    """
    quorum = voter()
    quorum.become_unattached(EPOCH, 0, leader_id=leader_id)
    quorum.effects.clear()
    row = VotePartition(
        partition_index=0,
        replica_epoch=EPOCH,
        replica_id=CANDIDATE,
        last_offset_epoch=0,
        last_offset=0,
    )
    asked = VoteRequest(
        cluster_id=quorum.cluster_id,
        voter_id=OWN,
        topics=[VoteTopic(topic_name=METADATA, partitions=[row])],
    )
    rules_elections.on_vote_request(quorum, asked, None, 0)
    replies = [effect.body for effect in quorum.effects if isinstance(effect, Reply)]
    assert len(replies) == 1 and isinstance(replies[0], VoteResponse)
    answer = replies[0].topics[0].partitions[0]
    assert (answer.error_code, answer.vote_granted) == (ErrorCode.NONE, is_granted)


@pytest.mark.parametrize(
    ("end_offset", "epoch", "position", "leader_epoch", "is_given"),
    [
        (40, 3, 0, EPOCH, True),
        (40, 3, 7, EPOCH, True),
        (41, 3, 0, EPOCH, False),
        (40, 4, 0, EPOCH, False),
        (39, 3, 0, EPOCH, False),
        (-1, 3, 0, EPOCH, False),
        (*FORMAT_SNAPSHOT, 0, EPOCH, False),
        (40, 3, -1, EPOCH, False),
        (40, 3, 0, EPOCH - 1, False),
        (40, 3, 0, EPOCH + 1, False),
    ],
)
def test_leader_serves_only_an_existing_snapshot(
    end_offset: int, epoch: int, position: int, leader_epoch: int, is_given: bool
) -> None:
    """Requested by both offset and epoch, in the leader's epoch
    (KafkaRaftClient.handleFetchSnapshotRequest).
    """
    quorum = voter()
    quorum.become_unattached(EPOCH - 1, 0)
    quorum.become_candidate(0, retries=1)
    quorum.become_leader(0)
    assert quorum.epoch == EPOCH
    quorum.log.snapshots = [FORMAT_SNAPSHOT, SNAPSHOT]
    row = FetchPartitionSnapshot(
        partition=0,
        current_leader_epoch=leader_epoch,
        snapshot_id=AskedSnapshot(end_offset=end_offset, epoch=epoch),
        position=position,
    )
    asked = FetchSnapshotRequest(
        replica_id=CANDIDATE,
        max_bytes=100,
        topics=[FetchTopicSnapshot(name=METADATA, partitions=[row])],
    )
    outcome = rules_serving.snapshot_outcome(quorum, asked, 0)
    if is_given:
        assert outcome == rules_serving.SnapshotPiece(SNAPSHOT, position, 100)
    else:
        assert (
            isinstance(outcome, FetchSnapshotResponse)
            and outcome.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        )
