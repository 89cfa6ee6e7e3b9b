"""Voter changes in a running quorum, and snapshots that replace the start of its log."""

import pytest

from kraftsim.raft.rules_effects import Reply, Send
from kraftsim.raft.rules_roles import Follower, Leader
from protocol.errors import ErrorCode
from protocol.messages.k18_api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from protocol.messages.k80_add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from protocol.messages.k81_remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from protocol.schema import Message
from tests.core.quorum_harness import CLUSTER, LISTENER, Harness, HarnessNode


def running(seed: int, *, size: int, formatted: tuple[int, ...]) -> Harness:
    harness = Harness(seed, size=size, formatted=formatted)
    for node in harness.nodes.values():
        node.start()
    harness.run_until(lambda: harness.leader() is not None)
    harness.run(2_000)
    return harness


def leader_of(harness: Harness) -> HarnessNode:
    leader = harness.leader()
    assert leader is not None, "there is a leader"
    return leader


def asked(harness: Harness, request: Message, limit_ms: int = 10_000) -> Message:
    """Send a request to the leader and return its response."""
    answers: list[Message] = []
    leader_of(harness).receive(request, answers.append)
    harness.run_until(lambda: bool(answers), limit_ms)
    return answers[0]


def add(
    harness: Harness, node_id: int, *, timeout_ms: int = 5_000, cluster_id: str | None = CLUSTER
) -> AddRaftVoterResponse:
    node = harness.nodes[node_id]
    request = AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=timeout_ms,
        voter_id=node_id,
        voter_directory_id=node.key.directory_id,
        listeners=[Listener(name=LISTENER, host="lab", port=9000 + node_id)],
    )
    answer = asked(harness, request)
    assert isinstance(answer, AddRaftVoterResponse)
    return answer


def remove(
    harness: Harness, node_id: int, directory_id: bytes | None = None
) -> RemoveRaftVoterResponse:
    directory_id = harness.nodes[node_id].key.directory_id if directory_id is None else directory_id
    answer = asked(
        harness,
        RemoveRaftVoterRequest(
            cluster_id=CLUSTER, voter_id=node_id, voter_directory_id=directory_id
        ),
    )
    assert isinstance(answer, RemoveRaftVoterResponse)
    return answer


def voters(harness: Harness) -> list[tuple[int, ...]]:
    return [
        node.replica.quorum.voter_set.ids
        for node in harness.nodes.values()
        if node.replica is not None
    ]


def test_quorum_grows_from_one_voter_to_three() -> None:
    harness = running(1, size=3, formatted=(1,))
    assert leader_of(harness).id == 1
    for node_id in (2, 3):
        assert add(harness, node_id).error_code == ErrorCode.NONE
    harness.run(2_000)
    assert voters(harness) == [(1, 2, 3)] * 3
    harness.nodes[1].crash(power_loss=True)
    harness.run_until(lambda: harness.leader() is not None and leader_of(harness).id != 1)
    leader_of(harness).write()
    harness.run(1_500)
    assert harness.nodes[2].disk.batches == harness.nodes[3].disk.batches


def test_removed_leader_commits_its_removal_and_resigns() -> None:
    harness = running(2, size=3, formatted=(1, 2, 3))
    gone = leader_of(harness)
    assert remove(harness, gone.id).error_code == ErrorCode.NONE
    harness.run_until(lambda: harness.leader() is not None and leader_of(harness) is not gone)
    harness.run(3_000)
    assert (
        gone.replica is not None
        and isinstance(gone.replica.quorum.role, Follower)
        and not gone.replica.quorum.is_voter
    )
    assert set(voters(harness)) == {tuple(node_id for node_id in (1, 2, 3) if node_id != gone.id)}


def test_invalid_voter_changes_are_rejected_as_in_kafka() -> None:
    harness = running(3, size=4, formatted=(1, 2, 3))
    assert add(harness, 4, cluster_id="another").error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert add(harness, 2).error_code == ErrorCode.DUPLICATE_VOTER
    assert remove(harness, 4).error_code == ErrorCode.VOTER_NOT_FOUND
    assert remove(harness, 2, directory_id=bytes(range(16))).error_code == ErrorCode.VOTER_NOT_FOUND
    assert remove(harness, 2, directory_id=bytes(16)).error_code == ErrorCode.INVALID_REQUEST
    follower = next(
        node for node in harness.nodes.values() if node is not leader_of(harness) and node.id != 4
    )
    answers: list[Message] = []
    follower.receive(
        RemoveRaftVoterRequest(
            cluster_id=CLUSTER, voter_id=1, voter_directory_id=harness.nodes[1].key.directory_id
        ),
        answers.append,
    )
    assert [answer.error_code for answer in answers] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_statically_configured_voters_cannot_change() -> None:
    harness = Harness(4, size=3)
    for node in harness.nodes.values():
        node.start()
    harness.run_until(lambda: harness.leader() is not None)
    harness.run(2_000)
    key = harness.nodes[1].key
    answer = asked(
        harness,
        RemoveRaftVoterRequest(cluster_id=CLUSTER, voter_id=1, voter_directory_id=b"d" * 16),
    )
    assert (
        isinstance(answer, RemoveRaftVoterResponse)
        and answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    )
    assert key.directory_id == bytes(16)


def test_unreachable_voter_is_not_added() -> None:
    harness = running(5, size=4, formatted=(1, 2, 3))
    harness.nodes[4].crash(power_loss=False)
    assert add(harness, 4, timeout_ms=1_000).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert set(voters(harness)) == {(1, 2, 3)}


def test_late_response_of_a_new_voter_is_ignored_after_the_timeout() -> None:
    """The tool already received error 7, and the leader remains leader.

    Source: AddVoterHandler.
    """
    harness = running(5, size=4, formatted=(1, 2, 3))
    leader = leader_of(harness).replica
    assert leader is not None
    newcomer = harness.nodes[4]
    request = AddRaftVoterRequest(
        cluster_id=CLUSTER,
        timeout_ms=100,
        voter_id=4,
        voter_directory_id=newcomer.key.directory_id,
        listeners=[Listener(name=LISTENER, host="lab", port=9004)],
    )
    leader.take_effects()
    leader.on_request(request, "the tool", harness.now_ms)
    [asked_voter] = leader.take_effects()
    assert isinstance(asked_voter, Send) and isinstance(asked_voter.body, ApiVersionsRequest)
    leader.poll(harness.now_ms + 100)
    [reply] = [effect for effect in leader.take_effects() if isinstance(effect, Reply)]
    assert (
        isinstance(reply.body, AddRaftVoterResponse)
        and reply.body.error_code == ErrorCode.REQUEST_TIMED_OUT
    )
    feature = SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
    leader.on_response(
        asked_voter.number, ApiVersionsResponse(supported_features=[feature]), harness.now_ms + 101
    )
    assert leader.take_effects() == [] and leader.is_leader
    assert leader.quorum.peers.is_ready(4, harness.now_ms + 101)


def test_uncommitted_voter_change_times_out_and_is_reverted_at_failover() -> None:
    harness = running(6, size=4, formatted=(1, 2, 3))
    leader = leader_of(harness)
    others = [node for node in harness.nodes.values() if node is not leader and node.id != 4]
    harness.run(500)
    for node in others:
        harness.partitioned[leader.id, node.id] = harness.partitioned[node.id, leader.id] = None
    assert add(harness, 4, timeout_ms=1_000).error_code in (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
    harness.run_until(lambda: harness.leader() in others)
    leader_of(harness).write()
    harness.partitioned.clear()
    harness.run(6_000)
    assert set(voters(harness)) == {(1, 2, 3)}
    assert {len(node.disk.batches) for node in harness.nodes.values()} == {
        len(leader_of(harness).disk.batches)
    }


@pytest.mark.parametrize("seed", range(12))
def test_voter_changes_under_faults_lose_nothing_committed(seed: int) -> None:
    """Voters are added and removed at random, nodes crash, messages are lost; the harness's checks
    always hold, and a leader is elected once faults end.
    """
    harness = running(seed, size=5, formatted=(1, 2, 3))
    rng = harness.random
    for _ in range(40):
        harness.run(rng.randrange(100, 700))
        node = harness.nodes[rng.randrange(5) + 1]
        leader = harness.leader()
        match rng.randrange(9):
            case 0 if node.replica is not None:
                node.crash(power_loss=rng.random() < 0.5)
            case 1 | 2 | 3 if node.replica is None:
                node.start()
            case 4 if leader is not None:
                key = node.key
                listeners = [Listener(name=LISTENER, host="lab", port=9000 + node.id)]
                change = AddRaftVoterRequest(
                    cluster_id=CLUSTER,
                    timeout_ms=3_000,
                    voter_id=node.id,
                    voter_directory_id=key.directory_id,
                    listeners=listeners,
                )
                leader.receive(change, lambda _: None)
            # union-attr: a leader runs
            case 5 if leader is not None and len(leader.replica.quorum.voter_set) > 2:  # type: ignore[union-attr]
                leader.receive(
                    RemoveRaftVoterRequest(
                        cluster_id=CLUSTER,
                        voter_id=node.id,
                        voter_directory_id=node.key.directory_id,
                    ),
                    lambda _: None,
                )
            case 6:
                harness.loss = rng.choice([0.0, 0.2])
            case _ if leader is not None:
                leader.write()
    harness.loss = 0.0
    for node in harness.nodes.values():
        if node.replica is None:
            node.start()
    harness.run(15_000)
    leader_of(harness).write()
    harness.run(4_000)
    assert {tuple(node.disk.batches) for node in harness.nodes.values()} == {
        tuple(leader_of(harness).disk.batches)
    }
    assert len(set(voters(harness))) == 1
    assert (
        sum(
            isinstance(node.replica.quorum.role, Leader)
            for node in harness.nodes.values()
            if node.replica
        )
        == 1
    )


@pytest.mark.parametrize("formatted", [(), (1, 2, 3)])
def test_replica_behind_the_log_start_loads_a_snapshot(formatted: tuple[int, ...]) -> None:
    harness = Harness(8, size=3, formatted=formatted)
    for node in harness.nodes.values():
        node.start()
    harness.run_until(lambda: harness.leader() is not None)
    harness.run(1_000)
    lagging = next(node for node in harness.nodes.values() if node is not harness.leader())
    lagging.crash(power_loss=False)
    for _ in range(5):
        leader_of(harness).write()
        harness.run(700)
    snapshot = leader_of(harness).take_snapshot()
    leader_of(harness).write()
    lagging.start()
    harness.run(6_000)
    leader = leader_of(harness)
    assert (
        lagging.disk.start_offset == snapshot.end_offset
        and lagging.disk.snapshots[snapshot] == leader.disk.snapshots[snapshot]
    )
    assert lagging.disk.batches == leader.disk.batches
    lagging.crash(power_loss=True)
    lagging.start()
    leader.write()
    harness.run(3_000)
    assert lagging.disk.batches == leader_of(harness).disk.batches
    assert set(voters(harness)) == {(1, 2, 3)}
