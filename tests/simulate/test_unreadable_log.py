"""A leader that cannot read its log stops, whether a follower's fetch or a timeout detects it
first.
"""

import pytest

from kraftsim.server.events import DiskFailed
from tests.simulate.fault_cluster import fault_cluster


@pytest.mark.parametrize("idle_ms", ["50", "0"])
def test_leader_with_an_unreadable_log_stops(idle_ms: str) -> None:
    """Otherwise it would remain leader without followers; healed, it returns with everything."""
    with fault_cluster(settings={"metadata.max.idle.interval.ms": idle_ms}) as cluster:
        leader = cluster.leader
        cluster.inject(
            "read-error",
            leader,
            {"file_class": "metadata-log", "first": 0, "bytes": 1 << 30, "duration_ms": 5000},
        )
        failed = cluster.of(DiskFailed, leader)
        assert [event.operation for event in failed] == ["read"], failed
