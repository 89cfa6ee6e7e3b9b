"""Leaders and followers: no acknowledged record is lost, and no two logs differ below the high
watermark of both.
"""

import pytest

from tests.core.replication_harness import ReplicationHarness

SEEDS = 60


def finished(seed: int, brokers: int) -> ReplicationHarness:
    """Run one random history; the harness raises AssertionError as soon as a guarantee is
    violated.
    """
    harness = ReplicationHarness(seed, brokers=brokers, min_in_sync=1 + seed % 2)
    harness.run(400, trouble=0.08)
    return harness


@pytest.mark.parametrize("seed", range(SEEDS, 140))
def test_no_acknowledged_record_is_lost_in_any_history(seed: int) -> None:
    """With four brokers seed 93 finds a leader that lets followers join the ISR before they have
    the start of its epoch (KAFKA-7128).
    """
    for brokers in (2, 4):
        finished(seed, brokers)


@pytest.mark.parametrize("brokers", [2, 3, 4])
def test_no_acknowledged_record_is_lost_and_all_logs_converge(brokers: int) -> None:
    """The histories are not trivial: leaders change, logs are truncated, replicas leave and join
    the ISR.
    """
    elections = truncations = shrinks = expansions = acknowledged = 0
    for seed in range(SEEDS):
        harness = finished(seed, brokers)
        elections += harness.elections
        truncations += harness.truncations
        shrinks += harness.shrinks
        expansions += harness.expansions
        acknowledged += len(harness.acknowledged)
    assert (
        min(elections, truncations, expansions) > SEEDS / 2
        and shrinks > SEEDS / 15
        and acknowledged > 20 * SEEDS
    )
