"""What the faults of ZooKeeper have in common: the server of a simulation, and how somebody is put between it and its clients for a while."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from kraftsim.faults.strike import Strike
from kraftsim.node.zookeeper.server import Front, ZookeeperServer
from kraftsim.world.simulated import Host, Simulation

COMPANION = "zookeeper"
"""Kept beside the simulation by whoever starts its nodes."""
Found = tuple[Host, ZookeeperServer]
Find = Callable[[], Found | None]


def make_known(simulation: Simulation, find: Find) -> None:
    """Say how the server is found that serves now, with the host it runs on; None while it is down."""
    simulation.companions[COMPANION] = find


def server_of(strike: Strike) -> Found | None:
    """Return the server that serves now; None where there is none, or while it is down."""
    find = strike.simulation.companions.get(COMPANION)
    if find is None:
        return None
    assert callable(find), "nobody else uses this name"
    found: Found | None = find()
    return None if found is None or found[1].is_dead or not found[0].is_alive else found


class Between(Front, Protocol):
    """Who stands there."""

    async def leave(self) -> None:
        """Let the server have its clients back, as soon as nobody waits for anything that is held here."""
        ...


def stand_between(strike: Strike, put: Callable[[ZookeeperServer], Between]) -> None:
    """Put somebody between the server and its clients for `duration_ms`, unless somebody stands there."""
    found = server_of(strike)
    if found is None or found[1].front is not found[1]:
        return
    host, server = found
    front = server.front = put(server)

    def undo() -> None:
        if host.is_alive and not server.is_dead and server.front is front:
            strike.simulation.spawn(host, front.leave())

    strike.lasting(undo, strike.integer("duration_ms"))


def later(seconds: float, function: Callable[[], None]) -> None:
    """Call a function of the server's process after a while."""
    asyncio.get_running_loop().call_later(seconds, function)
