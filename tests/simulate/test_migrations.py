"""Migrations from ZooKeeper to KRaft in virtual time: the complete migration, failovers during it,
the way back, and the bugs that these scenarios find.
"""

import pytest

from kraftsim.lab.bugs.bug import bug
from kraftsim.lab.explore.run import run_scenario

MOVE, FAILOVER, BACK, AGAIN = (
    "zk_to_kraft_migration",
    "controller_failover_during_migration",
    "migration_rollback",
    "migration_begun_again_with_new_quorum",
)
WHOLE_WAY = "zookeeper_2_8_to_latest"


@pytest.mark.parametrize(
    "name, seed", [(MOVE, 1), (FAILOVER, 2), (FAILOVER, 6), (BACK, 5), (AGAIN, 1), (WHOLE_WAY, 1)]
)
def test_cluster_migrates(name: str, seed: int) -> None:
    """Nothing is lost or duplicated, no producer id is allocated twice, and ZooKeeper agrees with
    the log while both are written.
    """
    result = run_scenario(name, seed=seed)
    assert (result.outcome, result.violations, result.trouble) == ("ok", (), None), "\n".join(
        result.lines()
    )


@pytest.mark.parametrize(
    "name, harness, seed, invariant",
    [
        ("KAFKA-15552", MOVE, 1, "producer-id-blocks-disjoint"),
        ("KAFKA-15109", MOVE, 2, "recovers-after-heal"),
        ("KAFKA-15010", FAILOVER, 35, "zookeeper-mirrors-log"),
        ("unfenced-producer-id-blocks", FAILOVER, 4, "producer-id-blocks-disjoint"),
        ("KAFKA-17457", FAILOVER, 2, "nodes-believe-the-truth"),
    ],
)
def test_injected_bug_is_found(name: str, harness: str, seed: int, invariant: str) -> None:
    """The seeds are the first of a sweep that find it; the bug declares which check detects it."""
    result = run_scenario(harness, seed=seed, bugs=(name,))
    assert invariant in result.invariants_violated, "\n".join(result.lines())
    assert invariant in bug(name).caught_by
