"""A paused process resumes when its own role is taken: that of a KRaft or ZooKeeper-mode
controller, or of a broker, but not when another's is.
"""

import pytest

from kraftsim.events.event import Event
from kraftsim.lab.faults.arm import arm
from kraftsim.lab.faults.fault import AtTime, Fault, OnEvent
from kraftsim.metadata.events import BrokerFenced, ControllerElected
from kraftsim.raft.events import RaftRoleChanged
from kraftsim.world.simulated import Simulation, SimulationStopped
from kraftsim.zookeeper.events import (
    BrokerLeft,
    ZookeeperControllerElected,
    ZookeeperControllerResigned,
)

TARGET, OTHER, SERVER = "broker-1", "broker-2", "zookeeper-1"
LASTS_MS, AFTER_MS = 5000, 200
LEADER = RaftRoleChanged(role="Leader", leader_epoch=4, leader_id=1, voted_id=-1, is_voter=True)
ELECTED, RESIGNED = (
    ZookeeperControllerElected(controller_epoch=7),
    ZookeeperControllerResigned(controller_epoch=7, reason="its session is over"),
)
NEXT = ZookeeperControllerElected(controller_epoch=8)
NEXT_LEADER = ControllerElected(leader_epoch=5, epoch_start_offset=9)
CASES: list[tuple[str, str, list[Event], Event, bool]] = [
    ("a controller of ZooKeeper's time", TARGET, [ELECTED], NEXT, True),
    ("one that was controller a while ago", TARGET, [ELECTED, RESIGNED], NEXT, False),
    ("a broker like others", TARGET, [], NEXT, False),
    (
        "a broker, when its session expires",
        TARGET,
        [],
        BrokerLeft(broker_id=1, broker_epoch=9),
        True,
    ),
    (
        "a broker, when another's session expires",
        TARGET,
        [],
        BrokerLeft(broker_id=2, broker_epoch=9),
        False,
    ),
    (
        "a broker that was fenced",
        TARGET,
        [],
        BrokerFenced(broker_id=1, broker_epoch=9, reason="no heartbeat"),
        True,
    ),
    ("a leader of the quorum", TARGET, [LEADER], NEXT_LEADER, True),
    ("a follower of the quorum", TARGET, [], NEXT_LEADER, False),
    (
        "a ZooKeeper server with the number of a broker",
        SERVER,
        [],
        BrokerLeft(broker_id=1, broker_epoch=9),
        False,
    ),
]


@pytest.mark.parametrize(
    "label, target, before, fact, is_taken", CASES, ids=[case[0] for case in CASES]
)
def test_zombie_resumes_when_its_own_role_is_taken(
    label: str, target: str, before: list[Event], fact: Event, is_taken: bool
) -> None:
    with Simulation(5) as simulation:
        for name in (TARGET, OTHER, SERVER):
            simulation.add_host(name)
        for event in before:
            simulation.world_of(target).emit(event)
        lasting = {"after_ms": AFTER_MS, "duration_ms": LASTS_MS}
        injection = arm(
            Fault(kind="zombie", target=target, trigger=AtTime(at_ms=100), params=lasting),
            simulation,
        )
        simulation.run_for(0.5)
        assert injection.has_fired and simulation.host(target).process.is_paused
        simulation.world_of(OTHER).emit(fact)
        assert injection.is_effective == is_taken, label
        simulation.run_for(AFTER_MS / 1000 + 0.01)
        assert simulation.host(target).process.is_paused != is_taken
        simulation.run_for(LASTS_MS / 1000)
        assert not simulation.host(target).process.is_paused and injection.is_over


def test_failing_fault_kind_ends_the_run_without_blaming_a_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A trigger fires inside a node, which would treat the exception as its own."""

    def broken(_: object, __: object) -> None:
        raise LookupError("no event is called so")

    monkeypatch.setattr("kraftsim.lab.faults.kinds.pauses._places_of", broken)
    with Simulation(5) as simulation:
        simulation.add_host(TARGET)
        events: list[Event] = []
        simulation.observe(lambda node, incarnation, n, t_ns, event: events.append(event))
        arm(
            Fault(
                kind="zombie",
                target=TARGET,
                trigger=OnEvent(kind="ZookeeperControllerElected", host=TARGET),
            ),
            simulation,
        )
        simulation.spawn(TARGET, _elected(simulation))
        with pytest.raises(
            SimulationStopped,
            match="the fault zombie at broker-1 failed: LookupError: no event is called so",
        ) as stopped:
            simulation.run_for(1)
        assert isinstance(stopped.value.__cause__, LookupError)
        assert ELECTED in events


async def _elected(simulation: Simulation) -> None:
    simulation.world_of(TARGET).emit(ELECTED)
