"""The effects of each process fault on a cluster, and that nothing remains afterwards."""

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial

import pytest

from kraftsim.lab.faults.arm import arm
from kraftsim.lab.faults.fault import FAULTS, AtTime, Fault, OnEvent, Value
from kraftsim.metadata.events import BrokerFenced, ControllerElected
from kraftsim.server.events import LogRecovered, NodeFailed, NodeReady, NodeStarted, NodeStopped
from kraftsim.server.events_connections import ConnectionClosed
from kraftsim.world.simulated import Simulation
from tests.simulate.fault_cluster import FaultCluster, fault_cluster

BROKER = "broker-1"
ROWS = [
    ("kill", "leader", {}, 2),
    ("power-loss", "leader", {}, 2),
    ("restart", BROKER, {}, 2),
    ("pause", "leader", {}, 1),
    ("slow-cpu", "leader", {}, 1),
    ("slow-cpu", BROKER, {"step_us": 10_000}, 1),
    ("loop-stalls", "leader", {"stall_ms": 400, "every_ms": 500}, 1),
    ("crash-loop", "leader", {"times": 4}, 5),
    ("crash-loop", BROKER, {"times": 3, "up_ms": 5, "down_ms": 20}, 4),
    ("half-open-restart", "leader", {}, 2),
    ("half-open-restart", BROKER, {}, 2),
    ("preempted-thread", "leader", {"duration_ms": 3000}, 1),
    ("preempted-thread", BROKER, {"times": 50}, 1),
    ("zombie", "leader", {}, 1),
    ("zombie", BROKER, {"after_ms": 300}, 1),
    ("stop", "leader", {}, 2),
    ("stop", BROKER, {}, 2),
    ("other-release", "leader", {"release": "4.4", "duration_ms": 2000}, 3),
    ("other-release", BROKER, {"release": "4.0", "duration_ms": 2000}, 3),
    ("other-release", BROKER, {"release": "3.3", "duration_ms": 1000}, 3),
    ("blackout", "leader", {}, 2),
    ("blackout", BROKER, {"apart_ms": 0}, 2),
]


@pytest.mark.parametrize(("kind", "target", "params", "incarnation"), ROWS)
def test_cluster_survives_process_faults(
    kind: str, target: str, params: Mapping[str, Value], incarnation: int
) -> None:
    """Every guarantee holds meanwhile; afterwards all clients are served, and no node is slow,
    paused or down.
    """
    with fault_cluster() as cluster:
        target = cluster.leader if target == "leader" else target
        assert cluster.inject(kind, target, params).is_effective
        assert cluster.host(target).process.incarnation == incarnation


def test_every_kind_of_the_family_has_a_row() -> None:
    assert {kind.name for kind in FAULTS.all() if kind.family.value == "process"} == {
        row[0] for row in ROWS
    }


def test_stopped_leader_resigns_and_a_killed_one_times_out() -> None:
    """Controlled shutdown: the next leader is elected at once, not after a timeout; the log was
    closed cleanly.
    """
    gaps = {}
    for kind in ("stop", "restart"):
        with fault_cluster() as cluster:
            leader, fired_ns = cluster.leader, cluster.simulation.now_ns
            arm(
                Fault(kind=kind, target=leader, trigger=AtTime(at_ms=cluster.now_ms)),
                cluster.simulation,
            )
            cluster.simulation.run_until(partial(_has_another_leader, cluster, leader), limit_s=10)
            gaps[kind] = (cluster.simulation.now_ns - fired_ns) / 1e9
            assert len(cluster.of(NodeStopped, leader)) == (kind == "stop")
    assert gaps["stop"] < 0.3 < gaps["restart"]


def _has_another_leader(cluster: FaultCluster, gone: str) -> bool:
    return cluster.cluster.leader not in (None, gone)


def test_node_restarts_as_another_release_and_back() -> None:
    """The controller rejects one whose levels end below that of the cluster, and it stops."""
    for release, takes_part in (("4.0", True), ("3.3", False)):
        with fault_cluster() as cluster:
            assert cluster.inject(
                "other-release", BROKER, {"release": release, "duration_ms": 3000}
            ).is_effective
            assert [event.release for event in cluster.of(NodeStarted, BROKER)] == [
                "3.9",
                release,
                "3.9",
            ]
            assert len(cluster.of(NodeReady, BROKER)) == (3 if takes_part else 2)


def test_controller_whose_release_does_not_support_the_level_stops() -> None:
    """The quorum continues without it (verified with 3.4.1 on the log of a 3.5.2: a fatal
    fault).
    """
    with fault_cluster() as cluster:
        leader = cluster.leader
        assert cluster.inject(
            "other-release", leader, {"release": "3.3", "duration_ms": 3000}
        ).is_effective
        reasons = [event.reason for event in cluster.of(NodeFailed, leader)]
        reason = (
            "ConfigError: kraftsim.release: metadata.version is finalized at level 21, and 3.3 "
            "knows 1 to 7: it cannot read this metadata log"
        )
        assert reasons == [reason]


def test_stop_that_takes_too_long_ends_in_a_kill() -> None:
    """As supervisors do it: SIGTERM, a grace period, SIGKILL.

    Here the disk keeps the node from ending.
    """
    with fault_cluster() as cluster:
        stuck = arm(
            Fault(
                kind="stuck-flush",
                target=BROKER,
                trigger=AtTime(at_ms=cluster.now_ms),
                params={"duration_ms": 0},
            ),
            cluster.simulation,
        )
        params = {"kill_after_ms": 500, "after_ms": 100}
        stop = arm(
            Fault(kind="stop", target=BROKER, trigger=AtTime(at_ms=cluster.now_ms), params=params),
            cluster.simulation,
        )
        cluster.simulation.run_for(0.4)
        assert cluster.host(BROKER).process.incarnation == 1
        cluster.simulation.run_for(0.5)
        assert (
            stop.is_effective
            and cluster.host(BROKER).process.incarnation == 2
            and cluster.of(NodeStopped, BROKER) == []
        )
        stuck.end()


def test_starting_node_ends_immediately_when_stopped() -> None:
    with fault_cluster() as cluster:
        simulation = cluster.simulation
        simulation.kill(BROKER)
        arm(
            Fault(
                kind="stop",
                trigger=OnEvent(kind="LogRecovered", host=BROKER),
                params={"after_ms": 100},
            ),
            simulation,
        )
        simulation.restart(BROKER)
        simulation.run_for(0.3)
        assert cluster.host(BROKER).process.incarnation == 3
        simulation.run_until(cluster.cluster.wait_until_ready(), limit_s=30)


def test_zombie_resumes_when_its_role_is_taken() -> None:
    """A former leader, and a fenced broker; a follower has no role that could be taken."""
    with fault_cluster() as cluster:
        leader = cluster.leader
        cluster.inject("zombie", leader, {"after_ms": 0})
        assert len(cluster.of(ControllerElected)) == 2 and cluster.leader != leader
    with fault_cluster() as cluster:
        assert cluster.inject("zombie", BROKER, {}).is_effective
        assert [event.broker_id for event in cluster.of(BrokerFenced)] == [1]
    with fault_cluster() as cluster:
        follower = next(
            name for name in cluster.cluster.spec.controller_names if name != cluster.leader
        )
        arm(
            Fault(
                kind="restart",
                target=cluster.leader,
                trigger=AtTime(at_ms=cluster.now_ms + 500),
                params={"after_ms": 10},
            ),
            cluster.simulation,
        )
        assert (
            not cluster.inject("zombie", follower, {}).is_effective
            and len(cluster.of(ControllerElected)) == 2
        )


def test_peers_of_a_half_open_restart_keep_the_old_connection() -> None:
    """It is not reset: the broker's new incarnation runs while the controller still waits on the
    connection to the old one.
    """
    with fault_cluster() as cluster:
        for kind in ("restart", "half-open-restart"):
            before = len(cluster.of(ConnectionClosed, "broker-2"))
            params = {"after_ms": 50} if kind == "restart" else {"after_ms": 50, "duration_ms": 0}
            injection = arm(
                Fault(
                    kind=kind,
                    target=cluster.leader,
                    trigger=AtTime(at_ms=cluster.now_ms),
                    params=params,
                ),
                cluster.simulation,
            )
            cluster.simulation.run_for(0.2)
            assert (len(cluster.of(ConnectionClosed, "broker-2")) > before) == (kind == "restart")
            cluster.simulation.run_for(5)
            injection.end()
            cluster.simulation.run_for(5)


def test_crash_loop_ends_with_a_restart_after_the_last_crash() -> None:
    with fault_cluster() as cluster:
        cluster.inject(
            "crash-loop", BROKER, {"times": 3, "up_ms": 1000, "down_ms": 50, "power_loss": True}
        )
        assert (
            len(cluster.of(LogRecovered, BROKER)) == 4 and len(cluster.of(NodeReady, BROKER)) >= 2
        )


# A slow process alone
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with Simulation(5) as simulation:
        simulation.add_host("a"), simulation.add_host("b")
        yield simulation


async def tick(seen: list[int], sim: Simulation, count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
        seen.append(sim.now_ns)


def test_every_callback_of_a_slow_process_takes_time(sim: Simulation) -> None:
    """Ten turns of one task and ten of another on one host: twenty callbacks; on another host no
    time passes.
    """
    injection = arm(
        Fault(
            kind="slow-cpu",
            target="a",
            trigger=AtTime(at_ms=0),
            params={"step_us": 1000, "duration_ms": 0},
        ),
        sim,
    )
    sim.run_for(0)
    slow: list[int] = []
    other: list[int] = []
    fast: list[int] = []
    tasks = [
        sim.spawn("a", tick(slow, sim, 10)),
        sim.spawn("a", tick(other, sim, 10)),
        sim.spawn("b", tick(fast, sim, 10)),
    ]
    for task in tasks:
        sim.run_until(task)
    assert set(fast) == {0} and injection.is_effective
    assert slow == other == [2_000_000 * n for n in range(1, 11)]
    injection.end()
    started = sim.now_ns + 2_000_000
    sim.run_for(0.1)
    after: list[int] = []
    sim.run_until(sim.spawn("a", tick(after, sim, 10)))
    assert len(set(after)) == 1 and after[0] >= started


def test_pause_of_a_slow_process_ends_when_both_faults_have_ended(sim: Simulation) -> None:
    seen: list[int] = []
    slow = arm(
        Fault(
            kind="slow-cpu",
            target="a",
            trigger=AtTime(at_ms=0),
            params={"step_us": 1000, "duration_ms": 0},
        ),
        sim,
    )
    for at_ms, duration_ms in ((5, 100), (50, 200)):
        arm(
            Fault(
                kind="pause",
                target="a",
                trigger=AtTime(at_ms=at_ms),
                params={"duration_ms": duration_ms},
            ),
            sim,
        )
    sim.run_for(0)
    sim.spawn("a", tick(seen, sim, 20))
    sim.run_for(1)
    assert (
        len(seen) == 20
        and seen[0] < 5_000_000
        and not any(5_000_000 < at < 250_000_000 for at in seen)
    )
    slow.end()
    assert sim.host("a").process.pause_count == 0


def test_process_killed_while_slow_or_paused_does_not_affect_the_next(sim: Simulation) -> None:
    arm(
        Fault(kind="pause", target="a", trigger=AtTime(at_ms=10), params={"duration_ms": 1000}), sim
    )
    arm(Fault(kind="restart", target="a", trigger=AtTime(at_ms=20), params={"after_ms": 10}), sim)
    arm(
        Fault(kind="pause", target="a", trigger=AtTime(at_ms=900), params={"duration_ms": 1000}),
        sim,
    )
    sim.run_for(1.5)
    assert sim.host("a").process.pause_count == 1, (
        "the pause of the first incarnation does not affect the second"
    )
    sim.run_for(1)
    assert sim.host("a").process.pause_count == 0
