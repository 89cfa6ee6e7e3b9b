"""A node runs another release of Kafka for a while: an incomplete upgrade, or a downgraded package.

It is stopped cleanly and started with the other release on the same disk. When the fault is over it
is stopped again and started with its own release. A node with an incompatible release (its feature
levels are too low, or it does not support the mode) exits, and is down meanwhile.
Source: KIP-584, KIP-778.
"""

import asyncio
from collections.abc import Callable

from kraftsim.lab.faults.fault import EVERYWHERE, Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.field import SocketInjection
from kraftsim.lab.faults.injection import Injection
from kraftsim.world.simulated import Host

RELEASE_KEY = "kraftsim.release"


def inject(injection: Injection) -> None:
    """Restart the target with another release, and with its own release in the end."""
    host = injection.simulation.host(injection.target)
    if not host.is_alive:
        return
    other, before = injection.text("release"), host.overrides.get(RELEASE_KEY)
    assert other is not None, "a release has a name"
    _begin_again(
        injection,
        host,
        other,
        lambda: injection.record_effect(f"the node restarted with release {other}"),
    )
    injection.lasting(
        lambda: _begin_again(injection, host, before, lambda: None),
        injection.integer("duration_ms"),
    )


def _begin_again(
    injection: Injection, host: Host, release: str | None, on_begun: Callable[[], None]
) -> None:
    """Stop a node cleanly and start it with a release, its own for None; one that takes too long is
    killed.
    """
    simulation, process = injection.simulation, host.process
    is_done = False

    def begin() -> None:
        if host.process is not process:
            return _begin_again(injection, host, release, on_begun)  # another fault was faster
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


async def over_sockets(injection: SocketInjection) -> None:
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


FAULT = FaultKind(
    name="other-release",
    title="a node with another release",
    family=Family.PROCESS,
    inject=inject,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    needs_releases=True,
    params={"release": "4.4", "duration_ms": 5000, "kill_after_ms": 10_000},
    draws={"release": OneOf(("4.0", "4.1", "4.4")), "duration_ms": Between(500, 8000)},
)
