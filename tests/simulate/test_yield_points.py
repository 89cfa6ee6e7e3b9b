"""Named yield points of a simulated node: another order for another seed, the same one for the same
seed.
"""

import asyncio
import re

import pytest

from kraftsim.lab.explore.run import run_scenario
from kraftsim.metadata.quorum_source import QuorumSource
from kraftsim.raft.raft_node import RaftNode
from kraftsim.server.broker import Broker
from kraftsim.server.controller import Controller
from kraftsim.world.simulated import Simulation
from kraftsim.world.simulated.world import SimulatedWorld
from tests.simulate.fault_cluster import fault_cluster
from tools.concerns import concern_files

PLACES = sorted(
    re.findall(
        r'\.yield_point\("([^"]+)"\)',
        "".join(path.read_text() for path in concern_files()),
    )
)


def order_of(seed: int, place: str = "here") -> tuple[str, ...]:
    """Return the order in which three tasks of a process pass the same five steps, with a yield
    point between every two.
    """
    with Simulation(seed) as simulation:
        simulation.add_host("a")
        world, done = simulation.world_of("a"), []

        async def walk(name: str) -> None:
            for step in range(5):
                await world.yield_point(place)
                done.append(f"{name}{step}")

        for task in [simulation.spawn("a", walk(name)) for name in "xyz"]:
            simulation.run_until(task)
        return tuple(done)


def test_seed_determines_the_order() -> None:
    orders = [order_of(seed) for seed in range(30)]
    assert orders == [order_of(seed) for seed in range(30)]
    straight = tuple(f"{name}{step}" for name in "xyz" for step in range(5))
    assert 5 <= orders.count(straight) <= 25, "some runs never yield there"
    assert len(set(orders)) == 31 - orders.count(straight), (
        "and all others have an order of their own"
    )


def test_yield_point_is_enabled_independently_of_others() -> None:
    """Draws of one yield point do not affect another."""
    assert {order_of(seed, "here") == order_of(seed, "there") for seed in range(20)} == {
        True,
        False,
    }


@pytest.mark.parametrize("place", PLACES)
def test_every_yield_point_of_a_node_is_reached(place: str, visited: dict[str, set[str]]) -> None:
    """A yield point that is never reached permutes nothing."""
    assert visited[place], f"no task yields at {place!r}"


@pytest.fixture(scope="module")
def visited() -> dict[str, set[str]]:
    """Return the nodes that reached each yield point during a leader failure, transaction timeouts,
    a migration from ZooKeeper, and a failover of combined nodes.
    """
    found: dict[str, set[str]] = {place: set() for place in PLACES}
    yield_point = SimulatedWorld.yield_point

    async def emitted(self: SimulatedWorld, place: str) -> None:
        found[place].add(self.node)
        await yield_point(self, place)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimulatedWorld, "yield_point", emitted)
        with fault_cluster() as cluster:
            cluster.inject("restart", cluster.leader, {"after_ms": 3000})
        assert run_scenario("transaction_timeout", seed=2).outcome == "ok"
        assert run_scenario("zk_to_kraft_migration", seed=2).outcome == "ok"
        assert run_scenario("combined_nodes_failover", seed=2).outcome == "ok"
    return found


def test_there_are_yield_points() -> None:
    assert len(PLACES) == len(set(PLACES)) >= 6


@pytest.mark.parametrize("name", ["controller-102", "broker-1"])
def test_replica_behind_its_log_start_continues_with_the_snapshot(name: str) -> None:
    """The records it has not applied were deleted behind a snapshot that it wrote itself.   Source:
    KafkaRaftClient.updateListenersProgress.
    """
    settings = {
        "metadata.log.segment.bytes": "400",
        "metadata.max.retention.bytes": "800",
        "metadata.log.max.record.bytes.between.snapshots": "500",
    }
    apply_next, lags = RaftNode._apply_next, []

    async def apply_late(self: RaftNode) -> bool:
        if self._shell.world.node == name:
            await asyncio.sleep(1)
            lags.append(self.quorum.log.start_offset - self.applied_end_offset)
        return await apply_next(self)

    with pytest.MonkeyPatch.context() as patch, fault_cluster(settings=settings) as cluster:
        patch.setattr(RaftNode, "_apply_next", apply_late)
        before = cluster.controller(cluster.leader).raft.log_end_offset
        cluster.simulation.kill(name)
        cluster.simulation.restart(name)
        cluster.simulation.run_for(20)
        node = cluster.cluster.nodes[name]
        if isinstance(node, Controller):
            raft = node.raft
        else:
            assert isinstance(node, Broker) and isinstance(node.source, QuorumSource), name
            assert node.source._raft is not None
            raft = node.source._raft
        assert max(lags) > 0 and raft.applied_end_offset > before
        assert (
            cluster.simulation.troubles,
            cluster.cluster.failures,
            cluster.host(name).process.incarnation,
        ) == ([], [], 2)
