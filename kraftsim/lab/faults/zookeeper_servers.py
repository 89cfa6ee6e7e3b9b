"""Common code of ZooKeeper faults: the server of a simulation, and an interceptor between it and
its clients for a while.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from kraftsim.lab.faults.injection import Injection
from kraftsim.world.simulated import Host, Simulation
from kraftsim.zookeeper.server import RequestInterceptor, ZookeeperServer

ATTACHMENT = "zookeeper"
"""An attachment of the simulation, set by the code that starts its nodes."""
Found = tuple[Host, ZookeeperServer]
Find = Callable[[], Found | None]


def make_known(simulation: Simulation, find: Find) -> None:
    """Register a function that returns the running server with its host; None while it is down."""
    simulation.attachments[ATTACHMENT] = find


def server_of(injection: Injection) -> Found | None:
    """Return the running server; None without ZooKeeper, or while it is down."""
    find = injection.simulation.attachments.get(ATTACHMENT)
    if find is None:
        return None
    assert callable(find), "the name is used here only"
    found: Found | None = find()
    return None if found is None or found[1].is_dead or not found[0].is_alive else found


class ServersBetween(RequestInterceptor, Protocol):
    """The interceptor that is installed."""

    async def leave(self) -> None:
        """Remove the interceptor, as soon as it holds nothing that a client waits for."""
        ...


def intercept(injection: Injection, put: Callable[[ZookeeperServer], ServersBetween]) -> None:
    """Install an interceptor between the server and its clients for `duration_ms`, unless there is
    one.
    """
    found = server_of(injection)
    if found is None or found[1].front is not found[1]:
        return
    host, server = found
    front = server.front = put(server)

    def undo() -> None:
        if host.is_alive and not server.is_dead and server.front is front:
            injection.simulation.spawn(host, front.leave())

    injection.lasting(undo, injection.integer("duration_ms"))


def later(seconds: float, function: Callable[[], None]) -> None:
    """Call a function of the server's process after a while."""
    asyncio.get_running_loop().call_later(seconds, function)
