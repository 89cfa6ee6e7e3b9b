"""Migrations from ZooKeeper to KRaft in virtual time: the complete migration, failovers during it,
the way back, and the bugs that these scenarios find.
"""

import pytest

from tests.simulate.findings import finds, is_clean

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
    is_clean(name, seed)


@pytest.mark.parametrize(
    "name, scenario, seed, invariant",
    [
        ("KAFKA-15552", MOVE, 1, "producer-id-blocks-disjoint"),
        ("KAFKA-15109", MOVE, 2, "recovers-after-heal"),
        ("KAFKA-15010", FAILOVER, 7, "zookeeper-mirrors-log"),
        ("unfenced-producer-id-blocks", FAILOVER, 1, "producer-id-blocks-disjoint"),
        ("KAFKA-17457", FAILOVER, 2, "nodes-believe-the-truth"),
    ],
)
def test_injected_bug_is_found(name: str, scenario: str, seed: int, invariant: str) -> None:
    """The bug declares which check detects it; the seed saves runs."""
    finds(name, scenario, seed, invariant)
