"""A process is killed and started several times in a row, each time soon after its start: a
supervisor that does not give up.
"""

from kraftsim.lab.faults.fault import EVERYWHERE, Between, DataLoss, Family, FaultKind, OneOf
from kraftsim.lab.faults.field import SocketInjection
from kraftsim.lab.faults.injection import Injection


def inject(injection: Injection) -> None:
    """Kill the target `times` times, `up_ms` after each start; it is effective when a process dies
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


async def over_sockets(injection: SocketInjection) -> None:
    """Send SIGKILL repeatedly; a power loss is only a kill here."""
    for _ in range(injection.integer("times")):
        if injection.is_over:
            return
        if await injection.field.kill(injection.target):
            injection.record_effect("a node went down")
        await injection.lasts(injection.integer("down_ms"))
        await injection.field.restart(injection.target)
        await injection.lasts(injection.integer("up_ms"))


FAULT = FaultKind(
    name="crash-loop",
    title="a process that crashes repeatedly",
    family=Family.PROCESS,
    inject=inject,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"times": 4, "up_ms": 300, "down_ms": 100, "power_loss": False},
    draws={
        "times": Between(2, 6),
        "up_ms": OneOf((1, 5, 30, 300, 1000)),
        "down_ms": Between(10, 500),
        "power_loss": OneOf((False, True)),
    },
    data_loss=DataLoss.UNFLUSHED,
    data_loss_if="power_loss",
)
