"""A leader that cannot read its log any more goes down, whoever notices first: a follower that asks, or the clock that ends its wait."""

import pytest

from kraftsim.events.nodes import DiskFailed
from tests.simulate.struck_cluster import struck_cluster


@pytest.mark.parametrize("idle_ms", ["50", "0"])
def test_a_leader_whose_log_cannot_be_read_goes_down(idle_ms: str) -> None:
    """Else it would lead on and nobody could follow; healed, it is back with everything."""
    with struck_cluster(settings={"metadata.max.idle.interval.ms": idle_ms}) as struck:
        leader = struck.leader
        struck.strike("read-error", leader, {"file_class": "metadata-log", "first": 0, "bytes": 1 << 30, "duration_ms": 5000})
        failed = struck.of(DiskFailed, leader)
        assert [event.operation for event in failed] == ["read"], failed
