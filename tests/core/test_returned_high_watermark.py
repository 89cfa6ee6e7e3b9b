"""The high watermark that a leader returns never falls below one that a follower has already seen;
otherwise it returns none.
"""

import pytest

from kraftsim.raft import rules_following
from kraftsim.raft.rules_quorum import Quorum
from kraftsim.raft.rules_settings import RaftSettings
from tests.core.quorum_harness import Harness


@pytest.mark.parametrize("seed", range(20))
def test_new_leader_never_publishes_a_lower_high_watermark_than_a_follower_has(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new leader may know less than its followers; Apache Kafka's replicas then fail with
    "Non-monotonic update of high watermark".
    """
    learn, seen = rules_following._learn_high_watermark, 0

    def learn_if_monotone(quorum: Quorum, leaders: int) -> None:
        nonlocal seen
        seen += 1
        assert leaders >= (quorum.log.high_watermark or 0), (
            f"replica {quorum.own.id} receives {leaders} after {quorum.log.high_watermark}"
        )
        learn(quorum, leaders)

    monkeypatch.setattr(rules_following, "_learn_high_watermark", learn_if_monotone)
    harness = Harness(seed, size=5, settings=RaftSettings(has_pre_vote=seed % 2 == 1))
    for node in harness.nodes.values():
        node.start()
    for _ in range(12):
        harness.run(4000)
        leader = harness.leader()
        assert leader is not None
        for _ in range(harness.random.randrange(1, 6)):
            leader.write()
            harness.run(harness.random.randrange(1, 40))
        leader.crash(power_loss=False)
        harness.run(4000)
        leader.start()
    assert seen > 100
