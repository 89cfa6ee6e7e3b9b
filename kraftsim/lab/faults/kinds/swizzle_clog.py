"""A random part of the hosts is clogged one by one, and unclogged one by one in another order.

So the set of connected hosts changes all the time, and held bytes are released in another order
than they were sent.
Source: FoundationDB's simulator (swizzled clogging), whose authors call it their best finder of
bugs.
"""

import asyncio
from functools import partial

from kraftsim.lab.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.field import Condition, SocketInjection, links_of
from kraftsim.lab.faults.injection import Injection


def inject(injection: Injection) -> None:
    """Clog hosts one after the other over the first part of the duration, and unclog them over the
    last; it is effective when any bytes are held.
    """
    hosts = [
        name
        for name in injection.hosts()
        if injection.random.random() * 100 < injection.integer("percent")
    ] or [injection.random.choice(injection.hosts())]
    duration_ms, spread_ms = injection.integer("duration_ms"), injection.integer("spread_ms")
    clogged: dict[str, list[tuple[str, str]]] = {}
    network = injection.simulation.network
    record_effect = injection.record_effect

    def clog(host: str) -> None:
        if injection.is_over:
            return
        clogged[host] = [
            pair
            for other in injection.simulation.hosts
            if other != host
            for pair in ((host, other), (other, host))
        ]
        for source, target in clogged[host]:
            network.clog(source, target, record_effect)

    def unclog(host: str) -> None:
        for source, target in clogged.pop(host, []):
            network.unclog(source, target, record_effect)

    def unclog_all() -> None:
        for host in list(clogged):
            unclog(host)

    for host in hosts:
        injection.after(injection.random.randint(0, spread_ms), partial(clog, host))
        injection.after(
            spread_ms + duration_ms + injection.random.randint(1, spread_ms + 1),
            partial(unclog, host),
        )
    injection.lasting(unclog_all, duration_ms + 2 * spread_ms + 2)


async def over_sockets(injection: SocketInjection) -> None:
    """The same with the nodes, including their links to clients."""
    random, nodes = injection.random, injection.nodes()
    chosen = [name for name in nodes if random.random() * 100 < injection.integer("percent")] or [
        random.choice(nodes)
    ]
    duration_ms, spread_ms = injection.integer("duration_ms"), injection.integer("spread_ms")
    times = {
        name: (
            random.randint(0, spread_ms),
            spread_ms + duration_ms + random.randint(1, spread_ms + 1),
        )
        for name in chosen
    }

    async def clog_one(name: str) -> None:
        begin_ms, end_ms = times[name]
        await asyncio.sleep(begin_ms / 1000)
        await injection.while_it_lasts(
            links_of(name, nodes), Condition(holds=True), end_ms - begin_ms
        )

    await injection.before_it_ends(asyncio.gather(*(clog_one(name) for name in chosen)), 0)


FAULT = FaultKind(
    name="swizzle-clog",
    title="hosts clogged one by one and unclogged in another order",
    family=Family.NETWORK,
    inject=inject,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"percent": 50, "spread_ms": 1000, "duration_ms": 2000},
    aim=Aim.ALL,
    draws={
        "percent": OneOf((20, 50, 80)),
        "spread_ms": Between(50, 2000),
        "duration_ms": Between(50, 4000),
    },
)
