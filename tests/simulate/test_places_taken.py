"""A process that stands still wakes up when its own place is taken: of a controller of KRaft or before it, or of a broker, and of nobody else."""

import pytest

from kraftsim.events.event import Event
from kraftsim.events.metadata import BrokerFenced, ControllerElected
from kraftsim.events.raft import RaftRoleChanged
from kraftsim.events.zookeeper_controllers import BrokerWent, ZookeeperControllerElected, ZookeeperControllerResigned
from kraftsim.faults.arm import arm
from kraftsim.faults.fault import Fault
from kraftsim.faults.trigger import AtTime, OnEvent
from kraftsim.world.simulated import Simulation, SimulationStopped

STRUCK, OTHER, SERVER = "broker-1", "broker-2", "zookeeper-1"
LASTS_MS, AFTER_MS = 5000, 200
LEADER = RaftRoleChanged(role="Leader", leader_epoch=4, leader_id=1, voted_id=-1, is_voter=True)
ELECTED, RESIGNED = ZookeeperControllerElected(controller_epoch=7), ZookeeperControllerResigned(controller_epoch=7, reason="its session is over")
NEXT = ZookeeperControllerElected(controller_epoch=8)
NEXT_LEADER = ControllerElected(leader_epoch=5, epoch_start_offset=9)
CASES: list[tuple[str, str, list[Event], Event, bool]] = [
    ("a controller of ZooKeeper's time", STRUCK, [ELECTED], NEXT, True),
    ("one that was controller a while ago", STRUCK, [ELECTED, RESIGNED], NEXT, False),
    ("a broker like others", STRUCK, [], NEXT, False),
    ("a broker whose session is over", STRUCK, [], BrokerWent(broker_id=1, broker_epoch=9), True),
    ("a broker whose neighbour's session is over", STRUCK, [], BrokerWent(broker_id=2, broker_epoch=9), False),
    ("a broker that was fenced", STRUCK, [], BrokerFenced(broker_id=1, broker_epoch=9, reason="no heartbeat"), True),
    ("a leader of the quorum", STRUCK, [LEADER], NEXT_LEADER, True),
    ("a follower of the quorum", STRUCK, [], NEXT_LEADER, False),
    ("a ZooKeeper server with the number of a broker", SERVER, [], BrokerWent(broker_id=1, broker_epoch=9), False),
]


@pytest.mark.parametrize("who, struck, before, fact, is_taken", CASES, ids=[case[0] for case in CASES])
def test_it_wakes_up_when_its_own_place_is_taken(who: str, struck: str, before: list[Event], fact: Event, is_taken: bool) -> None:
    with Simulation(5) as simulation:
        for name in (STRUCK, OTHER, SERVER):
            simulation.add_host(name)
        for told in before:
            simulation.world_of(struck).note(told)
        lasting = {"after_ms": AFTER_MS, "duration_ms": LASTS_MS}
        strike = arm(Fault(kind="zombie", target=struck, trigger=AtTime(at_ms=100), params=lasting), simulation)
        simulation.run_for(0.5)
        assert strike.has_fired and simulation.host(struck).process.is_paused
        simulation.world_of(OTHER).note(fact)
        assert strike.has_bitten == is_taken, who
        simulation.run_for(AFTER_MS / 1000 + 0.01)
        assert simulation.host(struck).process.is_paused != is_taken
        simulation.run_for(LASTS_MS / 1000)
        assert not simulation.host(struck).process.is_paused and strike.is_over


def test_a_kind_that_breaks_ends_the_run_and_no_node_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trigger goes off in the midst of a node, which would take the mistake for its own."""

    def broken(_: object, __: object) -> None:
        raise LookupError("no event is called so")

    monkeypatch.setattr("kraftsim.faults.zombie._places_of", broken)
    with Simulation(5) as simulation:
        simulation.add_host(STRUCK)
        told: list[Event] = []
        simulation.observe(lambda node, incarnation, n, t_ns, event: told.append(event))
        arm(Fault(kind="zombie", target=STRUCK, trigger=OnEvent(kind="ZookeeperControllerElected", host=STRUCK)), simulation)
        simulation.spawn(STRUCK, _elected(simulation))
        with pytest.raises(SimulationStopped, match="the fault zombie at broker-1 is broken: LookupError: no event is called so") as stopped:
            simulation.run_for(1)
        assert isinstance(stopped.value.__cause__, LookupError)
        assert ELECTED in told


async def _elected(simulation: Simulation) -> None:
    simulation.world_of(STRUCK).note(ELECTED)
