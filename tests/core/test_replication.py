"""Replicas that lead and follow: nothing that was acknowledged is lost, and no two logs differ below what both know to be replicated."""

import pytest

from tests.core.replication_lab import ReplicationLab

SEEDS = 60


def played(seed: int, brokers: int) -> ReplicationLab:
    """Play one random history; the lab raises AssertionError as soon as something promised is gone."""
    lab = ReplicationLab(seed, brokers=brokers, min_in_sync=1 + seed % 2)
    lab.run(400, trouble=0.08)
    return lab


@pytest.mark.parametrize("seed", range(SEEDS, 140))
def test_nothing_acknowledged_is_lost_in_any_history(seed: int) -> None:
    """Seed 93 finds, with four brokers, a leader that lets followers join before they have what its epoch began with (KAFKA-7128)."""
    for brokers in (2, 4):
        played(seed, brokers)


@pytest.mark.parametrize("brokers", [2, 3, 4])
def test_nothing_acknowledged_is_lost_and_all_end_with_the_same_log(brokers: int) -> None:
    """And the histories are worth playing: leaders change, logs are truncated, replicas leave and join."""
    elections = truncations = shrinks = expansions = acknowledged = 0
    for seed in range(SEEDS):
        lab = played(seed, brokers)
        elections += lab.elections
        truncations += lab.truncations
        shrinks += lab.shrinks
        expansions += lab.expansions
        acknowledged += len(lab.acknowledged)
    assert min(elections, truncations, expansions) > SEEDS / 2 and shrinks > SEEDS / 15 and acknowledged > 20 * SEEDS
