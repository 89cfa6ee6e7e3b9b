"""Three controllers as processes: the leader is killed with SIGKILL, and no producer id is
allocated twice.
"""

import time
from pathlib import Path

from kraftsim.cluster.processes import ProcessCluster
from tests.cluster.broker_client import broker_client
from tests.cluster.running import address_of, logged_events, restart_and_wait, running_processes

QUICK_ELECTIONS = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "controller.quorum.election.timeout.ms": "400",
    "controller.quorum.fetch.timeout.ms": "1000",
}
SECONDS = 30.0


def leader_of(cluster: ProcessCluster) -> str:
    """Return the controller that was elected last."""
    elected = {
        event["leader_epoch"]: name
        for name in cluster.spec.controller_names
        for event in logged_events(cluster.directory, "ControllerElected", name)
    }
    return elected[max(elected)]


def blocks(cluster: ProcessCluster) -> list[int]:
    """Return the first id of every block that any controller allocated, ascending."""
    return sorted(
        event["first_producer_id"]
        for name in cluster.spec.controller_names
        for event in logged_events(cluster.directory, "ProducerIdBlockAllocated", name)
    )


def test_producer_ids_stay_unique_when_the_leader_is_killed(tmp_path: Path) -> None:
    """KIP-595 and KIP-730: another controller is elected, has every allocated block, and the killed
    one rejoins.
    """
    with running_processes(tmp_path / "run", controllers=3, settings=QUICK_ELECTIONS) as cluster:
        with broker_client(address_of(cluster, "broker-1")) as broker:
            ids = [broker.fresh_producer_id() for _ in range(1500)]
            killed = leader_of(cluster)
            before = len(blocks(cluster))
            cluster.kill(killed)
            give_up_at = time.monotonic() + SECONDS
            while len(blocks(cluster)) <= before:
                assert time.monotonic() < give_up_at, "no other controller allocated a block"
                ids.append(broker.fresh_producer_id())
        assert leader_of(cluster) != killed
        restart_and_wait(cluster, killed)
        assert len(set(ids)) == len(ids)
        assert blocks(cluster) == [1000 * number for number in range(len(blocks(cluster)))]
