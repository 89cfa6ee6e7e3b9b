"""A process is paused until it has been replaced, and then resumes: a deposed leader, or a fenced
broker.

Another controller is elected, or the broker is fenced or gone from ZooKeeper; only then is it
resumed, with all its pending work.
"""

import asyncio

from kraftsim.events.event import Event
from kraftsim.lab.faults.fault import PROCESSES, SIM, Between, Family, FaultKind
from kraftsim.lab.faults.field import SocketInjection
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.state_tracker import state_tracker_of
from kraftsim.lab.faults.states import LEADER, ZOOKEEPER_CONTROLLER
from kraftsim.metadata.events import BrokerFenced, ControllerElected
from kraftsim.world.simulated import Host, Simulation, TriggerContext
from kraftsim.zookeeper.events import BrokerLeft, ZookeeperControllerElected

ZOOKEEPER = "zookeeper"


def inject(injection: Injection) -> None:
    """Pause the target; resume it `after_ms` after it was replaced, or after `duration_ms`.

    It is effective in the first case.
    """
    simulation = injection.simulation
    host = simulation.host(injection.target)
    places = _places_of(simulation, host)
    paused = simulation.pause(host)

    def wake() -> None:
        if host.process is paused:
            simulation.resume(host)

    def taken(trigger_context: TriggerContext) -> None:
        if injection.is_over or not paused.is_alive or trigger_context.host == host.name:
            return
        injection.record_effect("it was replaced while it was paused")
        injection.after(injection.integer("after_ms"), injection.end)

    for lost, fields in places:
        simulation.triggers.on_event(taken, kind=lost.__name__, fields=fields)
    injection.lasting(wake, injection.integer("duration_ms"))


def _places_of(simulation: Simulation, host: Host) -> list[tuple[type[Event], dict[str, object]]]:
    """Return the events that show that a host was replaced: as KRaft controller, as controller in
    ZooKeeper mode, and as a broker.
    """
    tracker = state_tracker_of(simulation)
    places: list[tuple[type[Event], dict[str, object]]] = []
    if tracker.holds(LEADER, host.name):
        places.append((ControllerElected, {}))
    if tracker.holds(ZOOKEEPER_CONTROLLER, host.name):
        places.append((ZookeeperControllerElected, {}))
    role, _, node_id = host.name.rpartition("-")
    if role != ZOOKEEPER and node_id.isdecimal():
        places += [(gone, {"broker_id": int(node_id)}) for gone in (BrokerFenced, BrokerLeft)]
    return places


async def over_sockets(injection: SocketInjection) -> None:
    """Send SIGSTOP, and SIGCONT once there is another leader, or the broker is considered dead."""
    if not await injection.field.pause(injection.target):
        return

    async def replaced() -> bool:
        await injection.field.until_replaced(injection.target)
        return True

    try:
        if await injection.before_it_ends(replaced(), injection.integer("duration_ms")):
            injection.record_effect("it was replaced while it was paused")
            await asyncio.sleep(injection.integer("after_ms") / 1000)
    finally:
        await injection.field.resume(injection.target)


FAULT = FaultKind(
    name="zombie",
    title="a process that resumes after it was replaced",
    family=Family.PROCESS,
    inject=inject,
    over_sockets=over_sockets,
    modes=(SIM, PROCESSES),
    spares=(ZOOKEEPER,),
    params={"after_ms": 0, "duration_ms": 20_000},
    draws={"after_ms": Between(0, 500), "duration_ms": Between(3000, 8000)},
)
