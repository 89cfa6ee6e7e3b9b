"""Scenarios on Apache Kafka's own nodes: clients, faults and verdicts as on kraftsim's."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftsim.cli.on_apache import audit_disks
from kraftsim.cluster.apache_kafka.cluster import ApacheCluster
from kraftsim.cluster.apache_kafka.jars import ApacheKafkaMissing
from kraftsim.cluster.apache_kafka.target import apache_target
from kraftsim.events.runs import FaultInjected
from kraftsim.lab.explore.over_sockets import read_events
from kraftsim.lab.explore.record import RunResult
from kraftsim.lab.explore.replay import read_replay
from kraftsim.lab.explore.run import rerun, run_scenario
from kraftsim.lab.faults.fault import AtTime, Fault, OnFrame
from protocol.api_keys import ApiKey
from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE

pytestmark = pytest.mark.interop

SCENARIO = "exactly_once_under_faults"
FAULTS = (
    Fault(
        kind="restart",
        trigger=OnFrame(api_key=ApiKey.WRITE_TXN_MARKERS, nth=3),
        params={"after_ms": 500},
    ),
    Fault(
        kind="pause",
        trigger=OnFrame(api_key=ApiKey.ADD_PARTITIONS_TO_TXN),
        params={"duration_ms": 900},
    ),
    Fault(
        kind="cut-connection",
        trigger=OnFrame(api_key=ApiKey.TXN_OFFSET_COMMIT, is_response=True, nth=2),
    ),
    Fault(
        kind="partition",
        target="broker-3",
        trigger=AtTime(at_ms=5000),
        params={"duration_ms": 1500},
    ),
    Fault(kind="lying-flush", target="broker-1", trigger=AtTime(at_ms=100)),
)
"""Without a target, a fault of a process is about the node that sends the frame: frames of clients
do not count. Both are requests between brokers, each on a connection of its own kind.
"""


@pytest.fixture(autouse=True)
def needs_apache_kafka() -> None:
    """Skip a test where Apache Kafka cannot run."""
    try:
        apache_target(f"apache:{DEFAULT_RELEASE}").jars()
    except ApacheKafkaMissing as missing:
        pytest.skip(str(missing))


def effective(result: RunResult) -> set[str]:
    """Return the kinds of faults that took effect."""
    return {kind for kind, counts in result.faults.items() if counts[2]}


@pytest.mark.parametrize("release", [DEFAULT_RELEASE, NEWEST_RELEASE])
def test_a_simulated_run_is_replayed_with_its_faults(release: str, tmp_path: Path) -> None:
    """Nodes of Apache Kafka are killed and paused as they send a frame, and cut off."""
    run_scenario(SCENARIO, seed=3, out=tmp_path / "simulated", faults=FAULTS)
    out = tmp_path / "apache"
    result = rerun(read_replay(tmp_path / "simulated"), out, apache_target(f"apache:{release}"))
    assert result.outcome == "ok" and result.trouble is None, result.lines()
    assert effective(result) == {"restart", "pause", "cut-connection", "partition"}
    assert [each.partition(" ")[0] for each in result.faults_left_out] == ["lying-flush"]
    evaluated = [name for name in result.verdicts if name not in result.not_evaluated]
    assert {"no-hanging-transactions", "producer-id-blocks-disjoint"} <= set(evaluated)
    assert result.verdicts["transactions-atomic"] == "ok"
    injected = {
        event.fault: event.target
        for _, event in read_events(out / "events")
        if isinstance(event, FaultInjected)
    }
    assert injected["restart"].startswith("broker-") and injected["pause"].startswith("broker-")
    assert audit_disks(result, quiet=True) == 0
    assert (out / "audit.html").exists()


@pytest.fixture
def without_controller(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kills the controller of a cluster, from outside, once the cluster is ready."""
    monkeypatch.setattr("kraftsim.cluster.apache_kafka.cluster.PATIENCE_SECONDS", 1.0)
    start = ApacheCluster.start

    async def start_and_kill(self: ApacheCluster, *, timeout_seconds: float | None = None) -> None:
        await start(self, timeout_seconds=timeout_seconds)
        os.kill(self.pid("controller-101"), signal.SIGKILL)

    monkeypatch.setattr(ApacheCluster, "start", start_and_kill)
    yield


@pytest.mark.usefixtures("without_controller")
def test_a_node_that_ends_on_its_own_ends_the_run(tmp_path: Path) -> None:
    """Clients would retry until the time of the scenario is over."""
    target = apache_target(f"apache:{DEFAULT_RELEASE}")
    result = run_scenario("zombie_fenced_by_epoch", out=tmp_path / "run", on=target)
    assert result.trouble is not None
    assert result.trouble.startswith("ClusterFailed: controller-101 went down with status -9")
