"""The quorum as a whole, without nodes: elections, replication, crashes, and losses, from a
seed.
"""

import pytest

from kraftsim.raft.events import CheckQuorumFailed
from kraftsim.raft.rules_log import RaftLog
from kraftsim.raft.rules_roles import Follower, Leader, Leadership
from kraftsim.raft.rules_settings import RaftSettings
from kraftsim.raft.rules_voters import ReplicaKey, VoterNode, VoterSet
from tests.core.quorum_harness import Harness


def started(harness: Harness) -> Harness:
    for node in harness.nodes.values():
        node.start()
    harness.run_until(lambda: harness.leader() is not None)
    return harness


@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize("has_pre_vote", [False, True])
def test_leader_is_elected_and_all_replicas_follow(size: int, has_pre_vote: bool) -> None:
    harness = started(Harness(7, size=size, settings=RaftSettings(has_pre_vote=has_pre_vote)))
    harness.run(3000)
    leader = harness.leader()
    assert leader is not None
    leader.write()
    harness.run(2000)
    ends = {
        node.replica.quorum.log.high_watermark for node in harness.nodes.values() if node.replica
    }
    assert ends == {leader.disk.end_offset()} and leader.disk.end_offset() > 1
    others = [
        node.replica.quorum.role
        for node in harness.nodes.values()
        if node.replica and node is not leader
    ]
    assert all(isinstance(role, Follower) for role in others)


@pytest.mark.parametrize("seed", range(40))
def test_committed_records_are_kept_and_no_epoch_has_two_leaders(seed: int) -> None:
    """Crashes, power losses, slow disks, partitioned links, lost messages; then no faults, until
    there is a leader and all replicas agree.
    """
    harness = Harness(
        seed, size=3 if seed % 4 else 5, settings=RaftSettings(has_pre_vote=seed % 2 == 1)
    )
    for node in harness.nodes.values():
        node.start()
    rng = harness.random
    for _ in range(60):
        harness.run(rng.randrange(50, 900))
        node = harness.nodes[rng.randrange(len(harness.nodes)) + 1]
        match rng.randrange(10):
            case 0 if node.replica is not None:
                node.crash(power_loss=rng.random() < 0.5)
            case 1 | 2 if node.replica is None:
                node.start()
            case 3:
                harness.partitioned[node.id, rng.randrange(len(harness.nodes)) + 1] = None
            case 4:
                harness.partitioned.clear()
            case 5:
                harness.loss = rng.choice([0.0, 0.1, 0.3])
            case 6:
                harness.flush_ms = rng.choice([5, 400])
            case 7 if seed % 3 == 0:
                for dark in harness.nodes.values():
                    if dark.replica is not None:
                        dark.crash(power_loss=True)
                    dark.start()
            case _:
                leader = harness.leader()
                if leader is not None:
                    leader.write()
    harness.partitioned.clear()
    harness.loss, harness.flush_ms = 0.0, 5
    for node in harness.nodes.values():
        if node.replica is None:
            node.start()
    harness.run(12_000)
    leader = harness.leader()
    assert leader is not None and leader.replica is not None
    leader.write()
    harness.run(3_000)
    leader = harness.leader()
    assert leader is not None and leader.replica is not None
    for node in harness.nodes.values():
        assert node.disk.batches == leader.disk.batches
        assert (
            node.replica is not None
            and node.replica.quorum.log.high_watermark == leader.disk.end_offset()
        )


def leadership_of(ends: dict[int, int], *, epoch_start_offset: int) -> tuple[Leadership, RaftLog]:
    voters = VoterSet(VoterNode(key=ReplicaKey(node_id)) for node_id in (1, *ends))
    leadership = Leadership(
        own=ReplicaKey(1),
        epoch=3,
        epoch_start_offset=epoch_start_offset,
        voters=voters,
        granting=(),
        now_ms=0,
    )
    log = RaftLog(end_offset=20)
    for node_id, end_offset in ends.items():
        leadership.on_fetch(ReplicaKey(node_id), end_offset, log.end_offset, 0, 0)
    return leadership, log


@pytest.mark.parametrize(
    "ends, flushed, epoch_start, committed",
    [
        ({2: 20, 3: 0}, 20, 10, 20),
        ({2: 20, 3: 20}, 5, 10, 20),  # a majority without the leader
        ({2: 12, 3: 20}, 5, 10, 12),
        (
            {2: 15, 3: 0},
            12,
            10,
            12,
        ),  # the leader's own log counts up to its flushed offset (KAFKA-10533)
        (
            {2: 10, 3: 10},
            20,
            10,
            None,
            # a majority has everything but the leader's first record: nothing of former epochs is
            # committed (KAFKA-12619)
        ),
        ({2: 11, 3: 0}, 20, 10, 11),
        ({2: 20, 3: 3, 4: 3, 5: 3}, 20, 10, None),
        ({2: 20, 3: 18, 4: 3, 5: 3}, 20, 10, 18),
    ],
)
def test_majority_commits_once_the_epochs_first_record_is_replicated(
    ends: dict[int, int], flushed: int, epoch_start: int, committed: int | None
) -> None:
    leadership, log = leadership_of(ends, epoch_start_offset=epoch_start)
    log.flushed_end_offset = flushed
    assert leadership.high_watermark(log) == committed


def test_leader_without_a_majority_resigns_in_time() -> None:
    harness = started(Harness(11, size=3))
    harness.run(2_000)
    leader = harness.leader()
    assert leader is not None and leader.replica is not None
    leader_epoch = leader.replica.quorum.epoch
    for other in harness.nodes:
        if other != leader.id:
            harness.partitioned[other, leader.id] = None
            harness.partitioned[leader.id, other] = None
    harness.run(leader.replica.quorum.settings.check_quorum_ms + 100)
    assert not isinstance(leader.replica.quorum.role, Leader)
    assert harness.leader() is not None and harness.leader() is not leader
    [(origin, unheard)] = [
        (node_id, event)
        for node_id, event in harness.events
        if isinstance(event, CheckQuorumFailed)
    ]
    assert (origin, unheard.leader_epoch, unheard.reachable_count, unheard.voter_count) == (
        leader.id,
        leader_epoch,
        1,
        3,
    )
