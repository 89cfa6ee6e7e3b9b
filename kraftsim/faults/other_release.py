"""A node comes back as another release of Kafka for a while: half an upgrade, or a package that somebody put back.

It is stopped in good order and started of the other release on the same disk. When the fault is over it is stopped again and comes back as what it
was. A release that cannot be part of the cluster as it is (its levels are too low, or it has no such mode) gives up, and the node is away.
Source: KIP-584, KIP-778.
"""

import asyncio
from collections.abc import Callable

from kraftsim.faults.fault import EVERYWHERE, Between, Family, FaultKind, OneOf
from kraftsim.faults.field import FieldStrike
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated import Host

RELEASE_KEY = "kraftsim.release"


def strike(strike: Strike) -> None:
    """Stop the target and start it again of another release, and the other way round in the end."""
    host = strike.simulation.host(strike.target)
    if not host.is_alive:
        return
    other, before = strike.text("release"), host.told.get(RELEASE_KEY)
    assert other is not None, "a release has a name"
    _begin_again(strike, host, other, lambda: strike.bite(f"the node came back as {other}"))
    strike.lasting(lambda: _begin_again(strike, host, before, lambda: None), strike.integer("duration_ms"))


def _begin_again(strike: Strike, host: Host, release: str | None, on_begun: Callable[[], None]) -> None:
    """Let a node end in good order and start of a release, its own for None; one that takes too long is killed."""
    simulation, process = strike.simulation, host.process
    is_done = False

    def begin() -> None:
        if host.process is not process:
            return _begin_again(strike, host, release, on_begun)  # somebody else was faster
        host.told = {**host.told, RELEASE_KEY: release} if release is not None else {k: v for k, v in host.told.items() if k != RELEASE_KEY}
        if host.is_alive:
            simulation.kill(host)
        simulation.restart(host)
        return on_begun()

    def on_stopped(stopping: "asyncio.Task[object]") -> None:
        mistake = None if stopping.cancelled() else stopping.exception()
        if mistake is not None and not isinstance(mistake, OSError):
            raise mistake
        strike.after(0, once)

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
        strike.after(strike.integer("kill_after_ms"), once)


async def over_sockets(strike: FieldStrike) -> None:
    """The same with SIGTERM and a new process each."""
    field, node, kill_after_ms = strike.field, strike.target, strike.integer("kill_after_ms")
    if not await field.stop(node, kill_after_ms=kill_after_ms):
        return
    other = strike.text("release")
    before = field.tell(node, {RELEASE_KEY: other})
    await field.restart(node)
    strike.bite(f"the node came back as {other}")
    await strike.lasts(strike.integer("duration_ms"))
    await field.stop(node, kill_after_ms=kill_after_ms)
    field.tell(node, before)
    await field.restart(node)


FAULT = FaultKind(
    name="other-release",
    title="a node that comes back as another release",
    family=Family.PROCESS,
    strike=strike,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    needs_releases=True,
    params={"release": "4.4", "duration_ms": 5000, "kill_after_ms": 10_000},
    draws={"release": OneOf(("4.0", "4.1", "4.4")), "duration_ms": Between(500, 8000)},
)
