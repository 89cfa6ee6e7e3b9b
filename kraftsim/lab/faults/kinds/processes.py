"""Faults of processes: they end, and start again with what the disk has kept.

A killed process leaves its page cache to the operating system: nothing that it wrote is lost. With
the power everything unflushed is lost, here for a host or for all nodes of a role at once. A clean
stop moves leaderships away and flushes first. A start may follow after a while, at once and again
and again, with another release, or without the peers noticing. After each of them the node must
recover the same state from its files, and must not act on a role that it had before.
"""

import asyncio
from collections.abc import Callable

from kraftsim.lab.faults.fault import (
    EVERYWHERE,
    FLUSHES_EVERY_BATCH,
    Between,
    DataLoss,
    Family,
    FaultKind,
    OneOf,
)
from kraftsim.lab.faults.field import SocketInjection
from kraftsim.lab.faults.injection import Injection
from kraftsim.world.simulated import Host


def kill(injection: Injection) -> None:
    """A process is killed: connections are reset, the page cache survives.

    It stays down; see `restart`.

    Kill the target's process.
    """
    host = injection.simulation.host(injection.target)
    connections = len(host.process.transports)
    was_alive = host.is_alive
    injection.simulation.kill(host)
    if was_alive:
        injection.record_effect(f"{connections} connections were reset")


async def kill_over_sockets(injection: SocketInjection) -> None:
    """Send SIGKILL; an embedded node is aborted."""
    if await injection.field.kill(injection.target):
        injection.record_effect("a node went down")


KILL = FaultKind(
    name="kill",
    title="kill -9 of a process",
    family=Family.PROCESS,
    inject=kill,
    over_sockets=kill_over_sockets,
    modes=EVERYWHERE,
)


def restart(injection: Injection) -> None:
    """A process is killed, or its host loses power, and it restarts after a while with the
    remaining data of its disk.

    Take the target down now and start it again later, unless another fault did.
    """
    simulation = injection.simulation
    host = simulation.host(injection.target)
    if not host.is_alive:
        return
    connections = len(host.process.transports)
    incarnation = host.process.incarnation
    lost_bytes = simulation.kill(host, power_loss=bool(injection.integer("power_loss")))

    def start() -> None:
        if not host.is_alive and host.process.incarnation == incarnation:
            simulation.restart(host)

    injection.record_effect(f"{lost_bytes} bytes and {connections} connections were lost")
    injection.lasting(start, injection.integer("after_ms"))


async def restart_over_sockets(injection: SocketInjection) -> None:
    """Send SIGKILL and start the node again; the page cache survives, so a power loss is only a
    kill here.
    """
    if not await injection.field.kill(injection.target):
        return
    injection.record_effect("a node went down")
    await injection.lasts(injection.integer("after_ms"))
    await injection.field.restart(injection.target)


RESTART = FaultKind(
    name="restart",
    title="a crash and a restart of a process",
    family=Family.PROCESS,
    inject=restart,
    over_sockets=restart_over_sockets,
    modes=EVERYWHERE,
    params={"after_ms": 1000, "power_loss": False},
    draws={"after_ms": Between(20, 4000), "power_loss": OneOf((False, True))},
    data_loss=DataLoss.UNFLUSHED,
    settings=FLUSHES_EVERY_BATCH,
    data_loss_if="power_loss",
)


def stop(injection: Injection) -> None:
    """A node is stopped cleanly, as with SIGTERM, and restarted: it does a controlled shutdown,
    flushes, and writes its clean-shutdown marker.

    A node that takes longer than `kill_after_ms` is killed, as supervisors do.

    Stop the target, and start it again after it has ended; it is effective when it was up.
    """
    simulation = injection.simulation
    host = simulation.host(injection.target)
    process = host.process
    if not process.is_alive:
        return

    def end(how: str) -> None:
        if host.process is process and process.is_alive:
            simulation.kill(host)
            injection.record_effect(f"the node {how}")
            injection.start_later(host, injection.integer("after_ms"))

    def on_stopped(stopping: "asyncio.Task[object]") -> None:
        error = None if stopping.cancelled() else stopping.exception()
        if error is not None and not isinstance(error, OSError):
            raise error
        injection.after(
            0, lambda: end("stopped cleanly" if error is None else f"did not stop cleanly: {error}")
        )

    stopping = simulation.stop(host)
    if stopping is None:
        end("was starting, and ended at once")
    else:
        stopping.add_done_callback(on_stopped, context=simulation.harness.process.context)
        injection.after(
            injection.integer("kill_after_ms"), lambda: end("took too long to stop, and was killed")
        )


async def stop_over_sockets(injection: SocketInjection) -> None:
    """Send SIGTERM, and start the node again; one that takes too long is killed."""
    if not await injection.field.stop(
        injection.target, kill_after_ms=injection.integer("kill_after_ms")
    ):
        return
    injection.record_effect("the node stopped")
    await injection.lasts(injection.integer("after_ms"))
    await injection.field.restart(injection.target)


STOP = FaultKind(
    name="stop",
    title="a clean restart of a node",
    family=Family.PROCESS,
    inject=stop,
    over_sockets=stop_over_sockets,
    modes=EVERYWHERE,
    params={"after_ms": 1000, "kill_after_ms": 10_000},
    draws={"after_ms": Between(20, 4000), "kill_after_ms": Between(1000, 10_000)},
)


def crash_loop(injection: Injection) -> None:
    """A process is killed and started several times in a row, each time soon after its start: a
    supervisor that does not give up.

    Kill the target `times` times, `up_ms` after each start; it is effective when a process dies
    that had started.
    """
    simulation = injection.simulation
    host = simulation.host(injection.target)

    def crash(left: int) -> None:
        if injection.is_over:
            return
        if host.is_alive:
            connections = len(host.process.transports)
            simulation.kill(host, power_loss=bool(injection.integer("power_loss")))
            injection.record_effect(f"{connections} connections were lost")
            injection.start_later(host, injection.integer("down_ms"))
        if left > 1:
            injection.after(
                injection.integer("down_ms") + injection.integer("up_ms"), lambda: crash(left - 1)
            )

    crash(injection.integer("times"))


async def crash_loop_over_sockets(injection: SocketInjection) -> None:
    """Send SIGKILL repeatedly; a power loss is only a kill here."""
    for _ in range(injection.integer("times")):
        if injection.is_over:
            return
        if await injection.field.kill(injection.target):
            injection.record_effect("a node went down")
        await injection.lasts(injection.integer("down_ms"))
        await injection.field.restart(injection.target)
        await injection.lasts(injection.integer("up_ms"))


CRASH_LOOP = FaultKind(
    name="crash-loop",
    title="a process that crashes repeatedly",
    family=Family.PROCESS,
    inject=crash_loop,
    over_sockets=crash_loop_over_sockets,
    modes=EVERYWHERE,
    params={"times": 4, "up_ms": 300, "down_ms": 100, "power_loss": False},
    draws={
        "times": Between(2, 6),
        "up_ms": OneOf((1, 5, 30, 300, 1000)),
        "down_ms": Between(10, 500),
        "power_loss": OneOf((False, True)),
    },
    data_loss=DataLoss.UNFLUSHED,
    settings=FLUSHES_EVERY_BATCH,
    data_loss_if="power_loss",
)


def power_loss(injection: Injection) -> None:
    """A host loses power: unflushed data may be lost, and peers are not notified.

    It stays down; see `restart`.

    Power off the target; it is effective if bytes were lost or connections hang.
    """
    host = injection.simulation.host(injection.target)
    connections = len(host.process.transports)
    lost_bytes = injection.simulation.kill(host, power_loss=True)
    if lost_bytes or connections:
        injection.record_effect(
            f"{lost_bytes} bytes were lost, {connections} connections are half-open"
        )


POWER_LOSS = FaultKind(
    name="power-loss",
    title="a power loss",
    family=Family.PROCESS,
    inject=power_loss,
    data_loss=DataLoss.UNFLUSHED,
    settings=FLUSHES_EVERY_BATCH,
)


def blackout(injection: Injection) -> None:
    """All nodes of a role lose power at the same moment, and restart one after the other: a rack, a
    building.

    A quorum must not lose what it has committed; brokers without replication lose records that they
    had not flushed.

    Power off the target and every host with the same name prefix (`controller-`, `broker-`).
    """
    simulation = injection.simulation
    prefix = injection.target.rpartition("-")[0] + "-"
    dark = [
        host
        for name, host in simulation.hosts.items()
        if name == injection.target or name.startswith(prefix)
    ]
    connections = lost_bytes = 0
    for host in [host for host in dark if host.is_alive]:
        connections += len(host.process.transports)
        lost_bytes += simulation.kill(host, power_loss=True)
        injection.start_later(
            host,
            injection.integer("after_ms")
            + injection.random.randint(0, injection.integer("apart_ms")),
        )
    if connections or lost_bytes:
        injection.record_effect(
            f"{lost_bytes} bytes were lost, {connections} connections are half-open"
        )


BLACKOUT = FaultKind(
    name="blackout",
    title="a power loss of all nodes of a role",
    family=Family.PROCESS,
    inject=blackout,
    params={"after_ms": 1000, "apart_ms": 1000},
    draws={"after_ms": Between(20, 3000), "apart_ms": Between(0, 3000)},
    data_loss=DataLoss.UNFLUSHED,
    settings=FLUSHES_EVERY_BATCH,
)


def half_open_restart(injection: Injection) -> None:
    """A process restarts, and its peers do not notice: a firewall that dropped the state of their
    connections discards what they send.

    Their connections are to a former incarnation of the node until they time out.

    Kill the target's process without closing its connections, and restart it; it is effective when
    a peer sends bytes on one of them.
    """
    simulation = injection.simulation
    host = simulation.host(injection.target)
    if not host.is_alive:
        return
    towards = []
    for ends in simulation.network.between(host.name, None):
        for end in ends:
            if end.process.host is host:
                end.out.lead_nowhere(lambda effect: None)
            else:
                end.out.lead_nowhere(injection.record_effect)
                towards.append(end.out)
    simulation.kill(host)
    injection.start_later(host, injection.integer("after_ms"))

    def tell() -> None:
        for pipe in towards:
            pipe.end_nowhere()

    injection.lasting(tell, injection.integer("duration_ms"))


async def half_open_restart_over_sockets(injection: SocketInjection) -> None:
    """Let the proxy keep the peers' connections open, and kill the node; it is effective when a
    peer sends bytes on one of them.
    """
    node = injection.target
    if injection.field.is_down(node):
        return
    number = await injection.field.halve(injection.links(), gone=node)
    try:
        await injection.field.kill(node)
        await injection.lasts(injection.integer("after_ms"))
        await injection.field.restart(node)
        await injection.lasts(
            max(1, injection.integer("duration_ms") - injection.integer("after_ms"))
        )
    finally:
        effect = await injection.field.lift(number)
    if effect.touched_bytes:
        injection.record_effect(
            f"{effect.touched_bytes} bytes were discarded on {effect.connections} connections"
        )


HALF_OPEN_RESTART = FaultKind(
    name="half-open-restart",
    title="a restart that leaves peers with half-open connections",
    family=Family.PROCESS,
    inject=half_open_restart,
    over_sockets=half_open_restart_over_sockets,
    through_proxy=True,
    modes=EVERYWHERE,
    params={"after_ms": 50, "duration_ms": 5000},
    draws={"after_ms": Between(5, 1000), "duration_ms": Between(500, 8000)},
)


RELEASE_KEY = "kraftsim.release"


def other_release(injection: Injection) -> None:
    """A node runs another release of Kafka for a while: an incomplete upgrade, or a downgraded
    package.

    It is stopped cleanly and started with the other release on the same disk. When the fault is
    over it is stopped again and started with its own release, the one that its operator chose last.
    A node with an incompatible release (its feature levels are too low, or it does not support the
    mode) exits, and is down meanwhile.

    Restart the target with another release, and with its own release in the end.

    Source: KIP-584, KIP-778.
    """
    host = injection.simulation.host(injection.target)
    if not host.is_alive:
        return
    other = injection.text("release")
    assert other is not None, "a release has a name"

    def begun() -> None:
        if not injection.is_over:
            injection.record_effect(f"the node restarted with release {other}")

    def end() -> None:
        if host.overrides.get(RELEASE_KEY) != host.own_release:
            _begin_again(injection, host, lambda: host.own_release, lambda: None)

    _begin_again(injection, host, lambda: host.own_release if injection.is_over else other, begun)
    injection.lasting(end, injection.integer("duration_ms"))


def _begin_again(
    injection: Injection,
    host: Host,
    choose: Callable[[], str | None],
    on_begun: Callable[[], None],
) -> None:
    """Stop a node cleanly and start it with the release that is chosen then, None for the first
    one; a node that takes too long is killed.
    """
    simulation, process = injection.simulation, host.process
    is_done = False

    def begin() -> None:
        if host.process is not process:
            return _begin_again(injection, host, choose, on_begun)  # another fault was faster
        release = choose()
        host.overrides = (
            {**host.overrides, RELEASE_KEY: release}
            if release is not None
            else {k: v for k, v in host.overrides.items() if k != RELEASE_KEY}
        )
        if host.is_alive:
            simulation.kill(host)
        simulation.restart(host)
        return on_begun()

    def on_stopped(stopping: "asyncio.Task[object]") -> None:
        error = None if stopping.cancelled() else stopping.exception()
        if error is not None and not isinstance(error, OSError):
            raise error
        injection.after(0, once)

    def once() -> None:
        nonlocal is_done
        if not is_done:
            is_done = True
            begin()

    stopping = simulation.stop(host)
    if stopping is None:
        once()
    else:
        stopping.add_done_callback(on_stopped, context=simulation.harness.process.context)
        injection.after(injection.integer("kill_after_ms"), once)


async def other_release_over_sockets(injection: SocketInjection) -> None:
    """The same with SIGTERM and a new process each time."""
    field, node, kill_after_ms = (
        injection.field,
        injection.target,
        injection.integer("kill_after_ms"),
    )
    if not await field.stop(node, kill_after_ms=kill_after_ms):
        return
    other = injection.text("release")
    before = field.tell(node, {RELEASE_KEY: other})
    await field.restart(node)
    injection.record_effect(f"the node restarted with release {other}")
    await injection.lasts(injection.integer("duration_ms"))
    await field.stop(node, kill_after_ms=kill_after_ms)
    field.tell(node, before)
    await field.restart(node)


OTHER_RELEASE = FaultKind(
    name="other-release",
    title="a node with another release",
    family=Family.PROCESS,
    inject=other_release,
    over_sockets=other_release_over_sockets,
    modes=EVERYWHERE,
    needs_releases=True,
    params={"release": "4.4", "duration_ms": 5000, "kill_after_ms": 10_000},
    draws={"release": OneOf(("4.0", "4.1", "4.4")), "duration_ms": Between(500, 8000)},
)


FAULTS = (
    KILL,
    RESTART,
    STOP,
    CRASH_LOOP,
    POWER_LOSS,
    BLACKOUT,
    HALF_OPEN_RESTART,
    OTHER_RELEASE,
)
