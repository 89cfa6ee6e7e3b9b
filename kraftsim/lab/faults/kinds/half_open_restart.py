"""A process restarts, and its peers do not notice: a firewall that dropped the state of their
connections discards what they send.

Their connections are to a former incarnation of the node until they time out.
"""

from kraftsim.lab.faults.fault import EVERYWHERE, Between, Family, FaultKind
from kraftsim.lab.faults.field import SocketInjection
from kraftsim.lab.faults.injection import Injection


def inject(injection: Injection) -> None:
    """Kill the target's process without closing its connections, and restart it; it is effective
    when a peer sends bytes on one of them.
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


async def over_sockets(injection: SocketInjection) -> None:
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


FAULT = FaultKind(
    name="half-open-restart",
    title="a restart that leaves peers with half-open connections",
    family=Family.PROCESS,
    inject=inject,
    over_sockets=over_sockets,
    through_proxy=True,
    modes=EVERYWHERE,
    params={"after_ms": 50, "duration_ms": 5000},
    draws={"after_ms": Between(5, 1000), "duration_ms": Between(500, 8000)},
)
