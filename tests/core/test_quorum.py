"""The quorum as a whole, without any shell: elections, replication, crashes, and losses, from a seed."""

import pytest

from kraftsim.core.raft.roles import Follower
from kraftsim.core.raft.settings import RaftSettings
from tests.core.quorum_lab import Lab


def started(lab: Lab) -> Lab:
    for node in lab.nodes.values():
        node.start()
    lab.run_until(lambda: lab.leader() is not None)
    return lab


@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize("has_pre_vote", [False, True])
def test_a_leader_is_elected_and_everybody_follows(size: int, has_pre_vote: bool) -> None:
    lab = started(Lab(7, size=size, settings=RaftSettings(has_pre_vote=has_pre_vote)))
    lab.run(3000)
    leader = lab.leader()
    assert leader is not None
    leader.write()
    lab.run(2000)
    ends = {node.replica.quorum.log.high_watermark for node in lab.nodes.values() if node.replica}
    assert ends == {leader.disk.end_offset()} and leader.disk.end_offset() > 1
    others = [node.replica.quorum.role for node in lab.nodes.values() if node.replica and node is not leader]
    assert all(isinstance(role, Follower) for role in others)


@pytest.mark.parametrize("seed", range(40))
def test_nothing_committed_is_lost_and_no_epoch_has_two_leaders(seed: int) -> None:
    """Crashes with and without loss of power, cut links, lost messages; then peace, in which somebody must lead and everybody agree."""
    lab = Lab(seed, size=3 if seed % 4 else 5, settings=RaftSettings(has_pre_vote=seed % 2 == 1))
    for node in lab.nodes.values():
        node.start()
    dice = lab.random
    for _ in range(60):
        lab.run(dice.randrange(50, 900))
        node = lab.nodes[dice.randrange(len(lab.nodes)) + 1]
        match dice.randrange(8):
            case 0 if node.replica is not None:
                node.crash(power_loss=dice.random() < 0.5)
            case 1 | 2 if node.replica is None:
                node.start()
            case 3:
                lab.cut[node.id, dice.randrange(len(lab.nodes)) + 1] = None
            case 4:
                lab.cut.clear()
            case 5:
                lab.loss = dice.choice([0.0, 0.1, 0.3])
            case _:
                leader = lab.leader()
                if leader is not None:
                    leader.write()
    lab.cut.clear()
    lab.loss = 0.0
    for node in lab.nodes.values():
        if node.replica is None:
            node.start()
    lab.run(12_000)
    leader = lab.leader()
    assert leader is not None and leader.replica is not None
    leader.write()
    lab.run(3_000)
    leader = lab.leader()
    assert leader is not None and leader.replica is not None
    for node in lab.nodes.values():
        assert node.disk.batches == leader.disk.batches
        assert node.replica is not None and node.replica.quorum.log.high_watermark == leader.disk.end_offset()
