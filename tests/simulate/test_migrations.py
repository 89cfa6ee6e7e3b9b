"""Migrations from ZooKeeper to KRaft in virtual time: the whole way, failovers on the way, the way back, and the bugs that such stories find."""

import pytest

from kraftsim.bugs.bug import bug
from kraftsim.explore.run import run_scenario

MOVE, FAILOVER, BACK = "zk_to_kraft_migration", "controller_failover_during_migration", "rollback_from_migration"
WHOLE_WAY = "from_zookeeper_to_the_newest"


@pytest.mark.parametrize("name, seed", [(MOVE, 1), (FAILOVER, 2), (FAILOVER, 6), (BACK, 5), (WHOLE_WAY, 1)])
def test_a_cluster_migrates(name, seed):
    """Nothing is lost or doubled, no producer id is given twice, and ZooKeeper says what the log says as long as both are written."""
    result = run_scenario(name, seed=seed)
    assert (result.outcome, result.violations, result.trouble) == ("ok", (), None), "\n".join(result.lines())


@pytest.mark.parametrize(
    "name, story, seed, invariant",
    [
        ("KAFKA-15552", MOVE, 1, "producer-id-blocks-disjoint"),
        ("KAFKA-15109", MOVE, 1, "acknowledged-records-on-replicas"),
        ("KAFKA-15010", FAILOVER, 58, "zookeeper-mirrors-log"),
        ("unfenced-producer-id-blocks", FAILOVER, 4, "producer-id-blocks-disjoint"),
        ("KAFKA-17457", FAILOVER, 2, "nodes-believe-the-truth"),
    ],
)
def test_a_bug_that_is_put_back_is_found(name, story, seed, invariant):
    """The seeds are the first of a sweep that find it; what catches it is what the bug says of itself."""
    result = run_scenario(story, seed=seed, bugs=(name,))
    assert invariant in result.invariants_violated, "\n".join(result.lines())
    assert invariant in bug(name).caught_by
