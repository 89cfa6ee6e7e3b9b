"""Faults of time inside a process: it is paused for a while, or is slow, and does not notice.

Its clocks go on, its peers replace it, and then it continues where it was: a leader that acts on an
epoch that is over, a broker whose registration is fenced, a client whose request has timed out.
Garbage collection, a suspended virtual machine and a starved one look like this. In simulation the
host runs no callbacks; over sockets the process gets SIGSTOP and SIGCONT.
"""

import asyncio

from kraftsim.events.event import Event
from kraftsim.lab.faults.fault import PROCESSES, SIM, Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.field import SocketInjection
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.state_tracker import LEADER, ZOOKEEPER_CONTROLLER, state_tracker_of
from kraftsim.metadata.events import BrokerFenced, ControllerElected
from kraftsim.world.interface import YieldPoint
from kraftsim.world.simulated import Host, Preemption, Simulation, TriggerContext
from kraftsim.zookeeper.events import BrokerLeft, ZookeeperControllerElected


def pause(injection: Injection) -> None:
    """A process is paused for a while, as in a long garbage collection: its peers get no answers,
    and everything pending happens at once afterwards.

    Pause the target's process now and resume it later.
    """
    simulation = injection.simulation
    host = simulation.host(injection.target)
    paused = simulation.pause(host)

    def resume() -> None:
        waited = simulation.resume(host) if host.process is paused else 0
        if waited:
            injection.record_effect(f"{waited} callbacks had to wait")

    injection.lasting(resume, injection.integer("duration_ms"))


async def pause_over_sockets(injection: SocketInjection) -> None:
    """Send SIGSTOP, and SIGCONT later; a single embedded node cannot be paused."""
    if not await injection.field.pause(injection.target):
        return
    await injection.lasts(injection.integer("duration_ms"))
    if await injection.field.resume(injection.target):
        injection.record_effect("a node was paused")


PAUSE = FaultKind(
    name="pause",
    title="a paused process",
    family=Family.PROCESS,
    inject=pause,
    over_sockets=pause_over_sockets,
    modes=(SIM, PROCESSES),
    params={"duration_ms": 5000},
    draws={"duration_ms": Between(100, 6000)},
)


ZOOKEEPER = "zookeeper"


def zombie(injection: Injection) -> None:
    """A process is paused until it has been replaced, and then resumes: a deposed leader, or a
    fenced broker.

    Another controller is elected, or the broker is fenced or gone from ZooKeeper; only then is it
    resumed, with all its pending work.

    Pause the target; resume it `after_ms` after it was replaced, or after `duration_ms`.

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


async def zombie_over_sockets(injection: SocketInjection) -> None:
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


ZOMBIE = FaultKind(
    name="zombie",
    title="a process that resumes after it was replaced",
    family=Family.PROCESS,
    inject=zombie,
    over_sockets=zombie_over_sockets,
    modes=(SIM, PROCESSES),
    spares=(ZOOKEEPER,),
    params={"after_ms": 0, "duration_ms": 20_000},
    draws={"after_ms": Between(0, 500), "duration_ms": Between(3000, 8000)},
)


def loop_stalls(injection: Injection) -> None:
    """The event loop of a node stalls repeatedly for short times: garbage collections, synchronous
    work, a starved machine.

    Pause the target's process for `stall_ms`, every `every_ms`; it is effective when callbacks have
    to wait.
    """
    simulation = injection.simulation
    host = simulation.host(injection.target)

    def stall() -> None:
        if injection.is_over:
            return
        stalled = simulation.pause(host)

        def go_on() -> None:
            waited = simulation.resume(host) if host.process is stalled else 0
            if waited:
                injection.record_effect(f"{waited} callbacks had to wait")

        injection.after(injection.integer("stall_ms"), go_on)
        injection.after(injection.integer("every_ms"), stall)

    stall()
    injection.lasting(lambda: None, injection.integer("duration_ms"))


async def loop_stalls_over_sockets(injection: SocketInjection) -> None:
    """Send SIGSTOP and SIGCONT alternately; a single embedded node cannot be paused."""

    async def stall() -> None:
        while True:
            is_stalled = await injection.field.pause(injection.target)
            await asyncio.sleep(injection.integer("stall_ms") / 1000)
            if is_stalled and await injection.field.resume(injection.target):
                injection.record_effect("a node was paused")
            await asyncio.sleep(
                max(0, injection.integer("every_ms") - injection.integer("stall_ms")) / 1000
            )

    try:
        await injection.before_it_ends(stall(), injection.integer("duration_ms"))
    finally:
        await injection.field.resume(injection.target)


LOOP_STALLS = FaultKind(
    name="loop-stalls",
    title="an event loop that stalls repeatedly",
    family=Family.PROCESS,
    inject=loop_stalls,
    over_sockets=loop_stalls_over_sockets,
    modes=(SIM, PROCESSES),
    triggers_on=("time", "event"),
    params={"stall_ms": 200, "every_ms": 400, "duration_ms": 5000},
    draws={
        "stall_ms": OneOf((20, 100, 400)),
        "every_ms": OneOf((500, 900)),
        "duration_ms": Between(1000, 6000),
    },
)


NANOSECONDS_PER_MICROSECOND = 1000
MILLISECONDS_PER_SECOND = 1000


def slow_cpu(injection: Injection) -> None:
    """A processor is slow for a while: every callback of the host takes time, and others have to
    wait.

    Otherwise callbacks take no virtual time at all, so that the slowdown is a time per callback
    instead of a factor.

    Let every callback of the target take `step_us`; it is effective when others have to wait for
    one.
    """

    def on_wait(waiting: int) -> None:
        injection.record_effect(f"{waiting} callbacks had to wait for the processor")

    step_ns = injection.integer("step_us") * NANOSECONDS_PER_MICROSECOND
    injection.lasting(
        injection.simulation.slow_down(injection.target, step_ns, on_wait),
        injection.integer("duration_ms"),
    )


SLOW_CPU = FaultKind(
    name="slow-cpu",
    title="a slow processor",
    family=Family.PROCESS,
    inject=slow_cpu,
    triggers_on=("time", "event"),
    params={"step_us": 1000, "duration_ms": 5000},
    draws={"step_us": OneOf((50, 500, 2000, 10_000)), "duration_ms": Between(500, 6000)},
)


def preempted_thread(injection: Injection) -> None:
    """A thread of a node is preempted where it releases a lock or hands work over, for up to as
    long as a session, while the other threads of the node run on.

    Preempt the next `times` threads of the target that reach `place` (`YieldPoint`; absent: any),
    for `duration_ms` each. It is effective when a thread had to wait.
    """
    name = injection.text("place")
    place = None if name is None else YieldPoint(name)
    preemptions = injection.host().preemptions
    preemption = Preemption(
        injection.integer("duration_ms") / MILLISECONDS_PER_SECOND,
        injection.integer("times"),
        lambda reached: injection.record_effect(f"a thread was preempted at {reached}"),
    )
    preemptions.add(place, preemption)
    injection.lasting(lambda: preemptions.remove(place, preemption), 0)


PREEMPTED_THREAD = FaultKind(
    name="preempted-thread",
    title="a preempted thread",
    family=Family.PROCESS,
    inject=preempted_thread,
    params={"place": None, "duration_ms": 100, "times": 1},
    draws={
        "place": OneOf((None, None, None, *(place.value for place in YieldPoint))),
        "duration_ms": Between(1, 6000),
        "times": OneOf((1, 1, 1, 2, 5, 50)),
    },
)


FAULTS = (
    PAUSE,
    ZOMBIE,
    LOOP_STALLS,
    SLOW_CPU,
    PREEMPTED_THREAD,
)
