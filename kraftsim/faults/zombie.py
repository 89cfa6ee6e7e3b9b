"""A process stands still until its place is taken, and goes on as if nothing had happened: a leader, or a broker, of yesterday.

Another controller is elected, or the broker is fenced or gone from ZooKeeper; only then does it wake up, with everything that it was about to do.
"""

import asyncio

from kraftsim.events.event import Event
from kraftsim.events.metadata import BrokerFenced, ControllerElected
from kraftsim.events.zookeeper_controllers import BrokerWent, ZookeeperControllerElected
from kraftsim.faults.fault import PROCESSES, SIM, Between, Family, FaultKind
from kraftsim.faults.field import FieldStrike
from kraftsim.faults.standing import standing_of
from kraftsim.faults.states import LEADER, ZOOKEEPER_CONTROLLER
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated import Host, Occasion, Simulation

ZOOKEEPER = "zookeeper"


def strike(strike: Strike) -> None:
    """Stop the target; wake it `after_ms` after its place was taken, or after `duration_ms`. It bites in the first case."""
    simulation = strike.simulation
    host = simulation.host(strike.target)
    places = _places_of(simulation, host)
    paused = simulation.pause(host)

    def wake() -> None:
        if host.process is paused:
            simulation.resume(host)

    def taken(occasion: Occasion) -> None:
        if strike.is_over or not paused.is_alive or occasion.host == host.name:
            return
        strike.bite("its place was taken while it stood still")
        strike.after(strike.integer("after_ms"), strike.end)

    for lost, fields in places:
        simulation.triggers.on_event(taken, kind=lost.__name__, fields=fields)
    strike.lasting(wake, strike.integer("duration_ms"))


def _places_of(simulation: Simulation, host: Host) -> list[tuple[type[Event], dict[str, object]]]:
    """Return by which facts a host's places are seen to be taken: that of a controller, of KRaft or before it, and that of a broker."""
    standing = standing_of(simulation)
    places: list[tuple[type[Event], dict[str, object]]] = []
    if standing.holds(LEADER, host.name):
        places.append((ControllerElected, {}))
    if standing.holds(ZOOKEEPER_CONTROLLER, host.name):
        places.append((ZookeeperControllerElected, {}))
    role, _, node_id = host.name.rpartition("-")
    if role != ZOOKEEPER and node_id.isdecimal():
        places += [(gone, {"broker_id": int(node_id)}) for gone in (BrokerFenced, BrokerWent)]
    return places


async def over_sockets(strike: FieldStrike) -> None:
    """Send SIGSTOP, and SIGCONT once others lead, or hold the broker for dead."""
    if not await strike.field.pause(strike.target):
        return

    async def replaced() -> bool:
        await strike.field.until_replaced(strike.target)
        return True

    try:
        if await strike.before_it_ends(replaced(), strike.integer("duration_ms")):
            strike.bite("its place was taken while it stood still")
            await asyncio.sleep(strike.integer("after_ms") / 1000)
    finally:
        await strike.field.resume(strike.target)


FAULT = FaultKind(
    name="zombie",
    title="a process that wakes up when its place is taken",
    family=Family.PROCESS,
    strike=strike,
    over_sockets=over_sockets,
    modes=(SIM, PROCESSES),
    spares=(ZOOKEEPER,),
    params={"after_ms": 0, "duration_ms": 20_000},
    draws={"after_ms": Between(0, 500), "duration_ms": Between(3000, 8000)},
)
