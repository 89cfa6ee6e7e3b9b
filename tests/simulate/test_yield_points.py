"""Named yield points of a simulated node: another order for another seed, the same one for the same
seed.
"""

import asyncio
from collections.abc import Callable

import pytest

from kraftsim.lab.explore.run import run_scenario
from kraftsim.metadata.quorum_source import QuorumSource
from kraftsim.raft.raft_node import RaftNode
from kraftsim.server.broker import Broker
from kraftsim.server.controller import Controller
from kraftsim.share_groups.persister import PersisterResult
from kraftsim.share_groups.rules_share_states import SharePartitionKey
from kraftsim.world.interface import YieldPoint
from kraftsim.world.simulated import Preemption, Simulation
from kraftsim.world.simulated.world import SimulatedWorld
from tests.node.brokers import running_cluster
from tests.simulate.fault_cluster import fault_cluster

HERE, THERE = YieldPoint.METADATA_WRITTEN, YieldPoint.METADATA_FLUSHED
PLACES = sorted(YieldPoint)
OF_BUGS = {YieldPoint.MARKERS_COUNTED}
"""Places that only a bug switch has."""


def order_of(seed: int, place: YieldPoint = HERE) -> tuple[str, ...]:
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
    assert {order_of(seed, HERE) == order_of(seed, THERE) for seed in range(20)} == {
        True,
        False,
    }


@pytest.mark.parametrize("place", [place for place in PLACES if place not in OF_BUGS])
def test_every_yield_point_of_a_node_is_reached(
    place: YieldPoint, visited: dict[YieldPoint, set[str]]
) -> None:
    """A yield point that is never reached permutes nothing."""
    assert visited[place], f"no task yields at {place!r}"


@pytest.fixture(scope="module")
def visited() -> dict[YieldPoint, set[str]]:
    """Return the nodes that reached each yield point during a leader failure, transaction timeouts,
    a migration from ZooKeeper, a failover of combined nodes, commits of offsets, the cleaning of
    logs, uploads of segments, and the initialization of a share-partition.
    """
    found: dict[YieldPoint, set[str]] = {place: set() for place in PLACES}
    yield_point, hand_over = SimulatedWorld.yield_point, SimulatedWorld.hand_over

    async def emitted(self: SimulatedWorld, place: YieldPoint) -> None:
        found[place].add(self.node)
        await yield_point(self, place)

    def handed_over(self: SimulatedWorld, place: YieldPoint, work: Callable[[], object]) -> None:
        found[place].add(self.node)
        hand_over(self, place, work)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimulatedWorld, "yield_point", emitted)
        patch.setattr(SimulatedWorld, "hand_over", handed_over)
        with fault_cluster() as cluster:
            cluster.inject("restart", cluster.leader, {"after_ms": 3000})
        assert run_scenario("transaction_timeout", seed=2).outcome == "ok"
        assert run_scenario("zk_to_kraft_migration", seed=2).outcome == "ok"
        assert run_scenario("combined_nodes_failover", seed=2).outcome == "ok"
        assert run_scenario("offset_commits_pre_and_post_kip_447", seed=2).outcome == "ok"
        assert run_scenario("compaction_under_load", seed=2).outcome == "ok"
        assert run_scenario("missing_remote_producer_snapshot", seed=2).outcome == "ok"
        initialize_a_share_partition()
    return found


def initialize_a_share_partition() -> None:
    """The persister of a broker asks its own share coordinator."""
    settings = {
        "share_coordinator_state_topic_replication_factor": "1",
        "share_coordinator_state_topic_min_isr": "1",
    }
    with running_cluster(1, settings, release_name="4.4") as cluster:
        topic_id = cluster.run(lambda client: client.create_topic("t"))

        async def initialize() -> list[PersisterResult]:
            rows = [(SharePartitionKey("g", topic_id, 0), 0, 0)]
            return await cluster.brokers["broker-1"].persister.initialize("g", rows)

        done = cluster.simulation.spawn("broker-1", initialize())
        assert not cluster.simulation.run_until(done, limit_s=60)[0].error


def passes(simulation: Simulation, done: list[tuple[str, float]]) -> None:
    """Start a process whose threads reach two yield points, and a place where work is handed
    over.
    """
    world, loop = simulation.world_of("a"), asyncio.get_running_loop

    async def walk(place: YieldPoint) -> None:
        await world.yield_point(place)
        done.append((place, loop().time()))

    async def hand_over() -> None:
        place = YieldPoint.DELAYED_OPERATION_TRIGGERED
        world.hand_over(place, lambda: done.append((place, loop().time())))

    for work in (walk(HERE), walk(HERE), walk(THERE), hand_over()):
        simulation.spawn("a", work)


def preempted(place: YieldPoint | None, times: int, *, ends_after_s: float = 60.0) -> list[float]:
    """Return the seconds that the threads of `passes` have waited, in the order in which they went
    on.
    """
    done = list[tuple[str, float]]()
    with Simulation(3) as simulation:
        host = simulation.add_host("a")
        preemption = Preemption(2.0, times, lambda reached: None)
        host.preemptions.add(place, preemption)
        passes(simulation, done)
        simulation.run_for(ends_after_s)
        host.preemptions.remove(place, preemption)
        simulation.run_for(10)
        assert not host.preemptions.is_armed and len(done) == 4
    return [round(at, 1) for _, at in done]


def test_preempted_threads_wait_and_the_others_run_on() -> None:
    assert preempted(HERE, 1) == [0.0, 0.0, 0.0, 2.0]
    assert preempted(HERE, 50) == [0.0, 0.0, 2.0, 2.0]
    assert preempted(YieldPoint.DELAYED_OPERATION_TRIGGERED, 1) == [0.0, 0.0, 0.0, 2.0]
    assert preempted(None, 4) == [2.0] * 4
    assert preempted(YieldPoint.LOG_CLEANED, 50) == [0.0] * 4


def test_threads_go_on_when_the_fault_ends() -> None:
    assert preempted(None, 50, ends_after_s=0.5) == [0.5] * 4


def test_preempted_threads_of_a_killed_process_never_go_on() -> None:
    done = list[tuple[str, float]]()
    with Simulation(3) as simulation:
        host = simulation.add_host("a")
        preemption = Preemption(2.0, 50, lambda reached: None)
        host.preemptions.add(None, preemption)
        passes(simulation, done)
        simulation.run_for(1)
        simulation.kill("a")
        host.preemptions.remove(None, preemption)
        simulation.run_for(10)
    assert not done


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
